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

// --- scales ------------------------------------------------------------------------------------

TEST(QuantizedSettings, DoNotMakeAListOfScalesThatIsNotOneForEachRowASetOfBlocks) {
  auto folder = float8(R"({"quant_method": "fp8"})");
  folder.put("a.weight_scale", "F32", "[2]", Floats{1, 2});
  EXPECT_THAT(folder.open_folder(),
              FailsWith(ErrorCode::kCorrupt, "does not have one scale for each of 4 rows"));
  folder.put("a.weight_scale", "F32", "[2,1]", Floats{1, 2});
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 1, 1, 1, 2, 2, 2, 2)));
}

TEST(QuantizedSettings, OfFloat8NeedScalesForEachFloat8Weight) {
  for (const char* method : {"fp8", "compressed-tensors", "modelopt"}) {
    auto folder = float8(R"({"quant_method": ")" + std::string(method) + "\"}");
    folder.drop("a.weight_scale");
    EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "no scales are stored for it"))
        << method;
  }
  auto folder = float8(R"({"quant_method": "other"})");
  EXPECT_THAT(folder.drop("a.weight_scale").open_folder()->tensors(), SizeIs(1));
}

TEST(QuantizedSettings, OfFloatCodesAllowOnlyZeroAsZeroPoint) {
  auto folder = float8(R"({"quant_method": "fp8"})");
  folder.put("a.weight_zero_point", "I8", "[4]", Bytes(4, 0));
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 1, 2, 2, 3, 3, 4, 4)));
  folder.put("a.weight_zero_point", "I8", "[4]", Bytes{0, 0, 1, 0});
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "have no zero points"));
}

TEST(QuantizedSettings, OfInt8BlocksMultiplyByTheirScales) {
  QuantFolder folder;
  folder.put("a.weight", "I8", "[3,2]", Bytes{1, 2, 3, 0xff, 5, 0x80})
      .put("a.weight_scale_inv", "F32", "[2,1]", Floats{2, 10});
  EXPECT_THAT(folder.open_folder()->tensors(), SizeIs(2));
  folder.config(R"({"quant_method": "blockwise_int8", "weight_block_size": [2, 2]})");
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(2, 4, 6, -2, 50, -1280)));
}

TEST(QuantizedSettings, DoNotHideAScaleThatTheFormulaDoesNotHave) {
  QuantFolder folder;
  folder.put("a.weight_packed", "I32", "[2,1]", Words(2, 0x88888888))
      .put("a.weight_scale", "F32", "[2,1]", Floats{1, 2})
      .put("a.weight_global_scale", "F32", "[1]", Floats{5})
      .put("a.weight_shape", "I64", "[2]", std::vector<std::int64_t>{2, 8})
      .config(R"({"quant_method": "compressed-tensors", "config_groups":
                  {"g": {"weights": {"num_bits": 4}}}})");
  const auto checkpoint = folder.open_folder();
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), SizeIs(2));
}

}  // namespace
}  // namespace onnx_external
