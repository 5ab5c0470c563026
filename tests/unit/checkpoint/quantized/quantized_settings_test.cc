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

TEST(QuantizedCheckpoints, WithPartsThatTheFormulaLacksAreRefused) {
  for (const char* part : {"weight_global_scale", "svdquant_lora_a", "input_rotation",
                           "weight_quantizer._scale", "weight.outliers"}) {
    auto folder = float8(R"({"quant_method": "fp8"})");
    folder.put("a." + std::string(part), "F32", "[2]", Floats{5, 5});
    EXPECT_THAT(folder.open_folder(),
                FailsWith(ErrorCode::kUnsupported, "not a part of the formula"))
        << part;
  }
  auto folder = float8(R"({"quant_method": "fp8"})");
  folder.put("a.bias", "F32", "[4]", Floats(4))
      .put("a.input_amax", "F32", "[1]", Floats(1))
      .put("a.lora_A.weight", "F32", "[1]", Floats(1))
      .put("b.weight_global_scale", "F32", "[1]", Floats(1));
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 1, 2, 2, 3, 3, 4, 4)));
}

TEST(QuantizedSettings, StateBitsFromOneToEight) {
  QuantFolder folder;
  folder.put("a.weight", "U32", "[1,4]", Words(4, 0x33333333))
      .put("a.scales", "F32", "[1,1]", Floats{1})
      .put("a.biases", "F32", "[1,1]", Floats{0});
  for (const char* bits : {"0", "-4", "9", "\"4\"", "4.0", "null", "4611686018427387904"}) {
    folder.config(R"({"bits": )" + std::string(bits) + "}");
    EXPECT_THAT(
        folder.open_folder(),
        FailsWith(ErrorCode::kCorrupt, "states no number of bits from 1 to 8 for 'a.weight'"))
        << bits;
  }
  folder.config(R"({"bits": 4})");
  EXPECT_THAT(folder.floats("a.weight"), HasValue(Each(3)));
}

// --- layouts -----------------------------------------------------------------------------------

TEST(QuantizedBitsandbytes, InTheOrderOfAGpuKernelIsRefused) {
  QuantFolder folder;
  folder.put("a.weight", "I8", "[2,2]", Bytes{1, 2, 3, 4})
      .put("a.SCB", "F32", "[2]", Floats{127, 254})
      .put("a.weight_format", "U8", "[]", Bytes{0})
      .config(R"({"quant_method": "bitsandbytes"})");
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 2, 6, 8)));
  folder.put("a.weight_format", "U8", "[]", Bytes{2});
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kUnsupported, "order of a GPU kernel"));
  folder.put("a.weight_format", "F32", "[]", Floats{0});
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "a.weight_format"));
}

TEST(QuantizedGptq, OfMoreThanEightBitsIsCorrupt) {
  QuantFolder folder;
  folder.put("a.qweight", "I32", "[4,2]", Words(8))
      .put("a.qzeros", "I32", "[1,64]", Words(64))
      .put("a.scales", "F32", "[1,2]", Floats{1, 1})
      .config(R"({"quant_method": "gptq"})");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "'a.qzeros'"));
}

TEST(QuantizedQuark, WithScalesOfColumnsIsRefused) {
  QuantFolder folder;
  folder.put("a.weight", "I8", "[2,2]", Bytes{1, 2, 3, 4})
      .put("a.weight_scale", "F32", "[2]", Floats{1, 10});
  const auto config = [&](const std::string& scheme, int axis) {
    folder.config(
        R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int8", )"
        R"("qscheme": ")" +
        scheme + R"(", "ch_axis": )" + std::to_string(axis) + "}}}");
  };
  config("per_channel", 0);
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 2, 30, 40)));
  config("per_channel", 1);
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kUnsupported, "ch_axis 1"));
  config("per_group", 0);
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kUnsupported, "ch_axis 0"));
}

// A group size of AutoRound counts only where the columns are no multiple of it: of 6 columns in
// two groups, the first has 4 or 3.
TEST(QuantizedAutoRound, TakesSettingsOfTheModuleItself) {
  QuantFolder folder;
  folder.put("mlp.gate_proj.qweight", "I8", "[6,1]", Bytes{1, 1, 1, 1, 1, 1})
      .put("mlp.gate_proj.qzeros", "I8", "[2,1]", Bytes{0, 0})
      .put("mlp.gate_proj.scales", "F32", "[2,1]", Floats{1, 10});
  const auto weight = [&](const std::string& extra) {
    folder.config(
        R"({"quant_method": "auto-round", "packing_format": "auto_round", "group_size": 3, )"
        R"("extra_config": {)" +
        extra + "}}");
    return folder.floats("mlp.gate_proj.weight");
  };
  EXPECT_THAT(weight(""), HasValue(ElementsAre(1, 1, 1, 10, 10, 10)));
  EXPECT_THAT(weight(R"("mlp.gate": {"group_size": 4})"),
              HasValue(ElementsAre(1, 1, 1, 10, 10, 10)));
  for (const char* name : {"mlp.gate_proj", "mlp", ".*gate_.*", "te_p(ro|x)j$"}) {
    EXPECT_THAT(weight("\"" + std::string(name) + R"(": {"group_size": 4})"),
                HasValue(ElementsAre(1, 1, 1, 1, 10, 10)))
        << name;
  }
  EXPECT_THAT(weight(R"(".*gate.*": {"group_size": 4}, "mlp.gate_proj": {"group_size": 5})"),
              HasValue(ElementsAre(1, 1, 1, 1, 1, 10)));
}

// --- quanto ------------------------------------------------------------------------------------

// 8 codes with one scale for each 4.
QuantFolder quanto(const std::string& module) {
  QuantFolder folder;
  folder.put(module + ".weight._data._data", "U8", "[1,4]", Bytes{0x10, 0x11, 0x12, 0x13})
      .put(module + ".weight._scale", "F32", "[2,1]", Floats{1, 10})
      .put(module + ".weight._shift", "F32", "[2,1]", Floats{0, 0});
  return folder;
}

std::string quanto_config(const std::string& bits) {
  return R"({"quant_method": "quanto", "weights": "int)" + bits + R"("}, "hidden_size": 4, "x": 1)";
}

TEST(QuantizedQuanto, TakesTheShapeFromTheNameOfItsModule) {
  const auto shape_of = [](const std::string& module) {
    auto folder = quanto(module).config(
        R"({"quant_method": "quanto", "weights": "int4"}, "hidden_size": 4, "x": {})");
    const auto checkpoint = folder.open_folder();
    return checkpoint ? checkpoint->tensors()[0].shape : Shape{};
  };
  EXPECT_THAT(shape_of("a.q_proj"), ElementsAre(2, 4));
  EXPECT_THAT(shape_of("a.o"), ElementsAre(4, 2));
}

TEST(QuantizedQuanto, OfAModuleWithAnUnknownNameIsRefusedUnlessItIsSquareOrHasABias) {
  auto folder = quanto("a.mixer").config(quanto_config("4"));
  EXPECT_THAT(folder.open_folder(),
              FailsWith(ErrorCode::kUnsupported, "which may be 4 x 2 or 2 x 4"));
  folder.put("a.mixer.bias", "F32", "[2]", Floats{0, 0});
  EXPECT_THAT(folder.floats("a.mixer.weight"), HasValue(ElementsAre(0, 1, 2, 3, 10, 10, 10, 10)));
}

TEST(QuantizedQuanto, OfASingleRowOfBytesHasTheBitsThatItsConfigSays) {
  auto folder = quanto("a.q_proj").config(quanto_config("2"));
  EXPECT_THAT(folder.floats("a.q_proj.weight"), HasValue(ElementsAre(0, 1, 2, 3, 0, 0, 0, 0)));
  folder.config(quanto_config("4"));
  EXPECT_THAT(folder.floats("a.q_proj.weight"), HasValue(ElementsAre(0, 1, 2, 3, 10, 10, 10, 10)));
  folder.config(R"({"quant_method": "quanto"}, "hidden_size": 4, "x": {})");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kAmbiguous, "number of bits"));
}

}  // namespace
}  // namespace onnx_external
