// Settings and parts that change the values of quantized weights: they are read, or an error.
#include <gmock/gmock.h>

#include "support/result_matchers.h"
#include "unit/checkpoint/quantized/quant_folder.h"

namespace onnx_external {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;
using Words = std::vector<std::uint32_t>;

QuantFolder float8(const std::string& config, const std::string& scale = "weight_scale") {
  QuantFolder folder;
  folder.put("a.weight", "F8_E4M3", "[4,2]", Bytes(8, kFloat8One))
      .put("a." + scale, "F32", "[4]", Floats{1, 2, 3, 4})
      .config(config);
  return folder;
}

// --- rotations ---------------------------------------------------------------------------------

TEST(QuantizedSettings, ThatRotateInputsAtRunTimeAreRefused) {
  for (const char* settings :
       {R"("rotation": "hadamard")", R"("rotation_config": {"algorithm": "hadamard"})",
        R"("spinquant_config": {"r1": true, "r4": true})",
        R"("algo_config": [{"name": "rotation", "r1": true, "r4": true}])",
        R"("algo_config": [{"name": "rotation", "r4": false, "online_r1_rotation": true}])",
        R"("algo_config": [{"name": "quarot"}])",
        R"("transform_config": {"config_groups": {"R4": {"apply": [{"location": "input"}]}}})"}) {
    const auto folder = float8(R"({"quant_method": "fp8", )" + std::string(settings) + "}");
    EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kUnsupported, "rotates the inputs"))
        << settings;
  }
}

TEST(QuantizedSettings, WhoseRotationsAreFusedIntoWeightsAreRead) {
  for (
      const char* settings :
      {R"("rotation": null)", R"("rotation_config": {})", R"("rotation_config": null)",
       R"("spinquant_config": {"r1": true, "r2": true, "r4": false})",
       R"("algo_config": [{"name": "awq"}, {"name": "rotation", "r1": true, "r4": false}])",
       R"("transform_config": {"config_groups": {"R1": {"apply": [{"location": "weight_input"}]}}})"}) {
    const auto folder = float8(R"({"quant_method": "fp8", )" + std::string(settings) + "}");
    EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 1, 2, 2, 3, 3, 4, 4)))
        << settings;
  }
}

}  // namespace
}  // namespace onnx_external
