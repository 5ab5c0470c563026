// Quantized checkpoints whose parts or settings lie: one lie, one test.
#include <gmock/gmock.h>

#include "base/json.h"
#include "checkpoint/derivation_json.h"
#include "onnx_external/derived.h"
#include "support/result_matchers.h"
#include "unit/checkpoint/quantized/quant_folder.h"

namespace onnx_external {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Words = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

constexpr std::uint32_t kCounting = 0x76543210;  // codes 0 to 7
constexpr std::size_t kRows = 8;

// Eight rows of the codes 0 to 7 in two groups, whose scales are 1 and 2.
QuantFolder gptq(std::uint32_t zeros, const std::string& format) {
  QuantFolder folder;
  Floats scales(2 * kRows, 1);
  std::fill(scales.begin() + kRows, scales.end(), 2.0F);
  folder.put("a.qweight", "I32", "[1,8]", Words(kRows, kCounting))
      .put("a.qzeros", "I32", "[2,1]", Words{zeros, zeros})
      .put("a.scales", "F32", "[2,8]", scales)
      .put("a.g_idx", "I32", "[8]", Words{0, 0, 0, 0, 1, 1, 1, 1})
      .config(R"({"quant_method": "gptq", "bits": 4, "group_size": 4, "checkpoint_format": ")" +
              format + "\"}");
  return folder;
}

Floats first_row(const Result<Floats>& all, std::size_t columns = 8) {
  return all ? Floats(all->begin(), all->begin() + static_cast<std::ptrdiff_t>(columns)) : Floats();
}

TEST(QuantizedGptq, StoresZeroPointsMinusOne) {
  const auto folder = gptq(0x77777777, "gptq");
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
  const auto checkpoint = folder.open_folder();
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), SizeIs(1));
  EXPECT_THAT(checkpoint->notes(), IsEmpty());
}

TEST(QuantizedGptq, ThatSaysTheFirstVersionAndHasZeroPointsOfTheSecondIsReadByItsValues) {
  const auto folder = gptq(0x88888888, "gptq");
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
  EXPECT_THAT(
      folder.open_folder()->notes(),
      ElementsAre(HasSubstr("says \"gptq\", but all zero points have the form of \"gptq_v2\"")));
}

// 32 rows and columns of the 5-bit code 17, with the zero point 16: both in planes of 4 bits and 1.
QuantFolder gptq_in_planes() {
  constexpr std::size_t kSize = 32;
  Words codes(4 * kSize, 0x11111111);
  codes.resize(5 * kSize, 0xFFFFFFFF);
  QuantFolder folder;
  folder.put("a.qweight", "I32", "[5,32]", codes)
      .put("a.qzeros", "I32", "[1,5]", Words{0, 0, 0, 0, 0xFFFFFFFF})
      .put("a.scales", "F32", "[1,32]", Floats(kSize, 0.5F));
  return folder;
}

TEST(QuantizedGptq, OfFiveBitsIsInPlanesWhateverItsConfigSays) {
  const auto folder = gptq_in_planes();
  EXPECT_THAT(QuantFolder::floats_of(folder.open_file(), "a.weight"), HasValue(Each(0.5F)));
  auto says = gptq_in_planes();
  says.config(R"({"quant_method": "gptq", "bits": 5, "checkpoint_format": "gptq"})");
  EXPECT_THAT(says.floats("a.weight"), HasValue(Each(0.5F)));
}

TEST(QuantizedGptq, InPlanesOfOtherWordsOrSizesIsAnError) {
  const std::string config = R"({"quant_method": "gptq", "checkpoint_format": "gptq_p"})";
  auto short_words = gptq_in_planes();
  short_words.put("a.qweight", "I16", "[10,32]", Words(5 * 32))
      .put("a.qzeros", "I16", "[1,10]", Words(5))
      .config(config);
  EXPECT_THAT(short_words.floats("a.weight"),
              FailsWith(ErrorCode::kCorrupt, "are not parts of the same quantized weight"));
  auto uneven = gptq_in_planes();
  uneven.put("a.qweight", "I32", "[6,32]", Words(6 * 32)).config(config);
  EXPECT_THAT(uneven.floats("a.weight"), FailsWith(ErrorCode::kCorrupt, "'a.qweight'"));
}

TEST(QuantizedGptq, WithZeroPointsOfItsOwnIsReadAsItsConfigSays) {
  EXPECT_THAT(first_row(gptq(0x33333333, "gptq").floats("a.weight")),
              ElementsAre(-4, -3, -2, -1, 0, 2, 4, 6));
  EXPECT_THAT(first_row(gptq(0x33333333, "gptq_v2").floats("a.weight")),
              ElementsAre(-3, -2, -1, 0, 2, 4, 6, 8));
}

TEST(QuantizedGptq, OfAutoRoundStoresZeroPointsAsItsPackingSays) {
  auto folder = gptq(0x33333333, "");
  folder.config(R"({"quant_method": "auto-round", "packing_format": "auto_round"})");
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-3, -2, -1, 0, 2, 4, 6, 8));
  folder.config(R"({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"})");
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-4, -3, -2, -1, 0, 2, 4, 6));
}

TEST(QuantizedGptq, WithZeroPointsOfItsOwnAndNoConfigStaysInItsParts) {
  const auto checkpoint = gptq(0x33333333, "gptq").open_file();
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->tensors(), SizeIs(4));
}

TEST(QuantizedGptq, IsReadFromItsFileAloneIfItsValuesTellTheVersion) {
  EXPECT_THAT(first_row(QuantFolder::floats_of(gptq(0x88888888, "").open_file(), "a.weight")),
              ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
}

TEST(QuantizedGptq, TakesTheGroupOfAColumnFromItsOrder) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.g_idx", "I32", "[8]", Words{1, 0, 1, 0, 1, 0, 1, 0});
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-16, -7, -12, -5, -8, -3, -4, -1));
}

TEST(QuantizedGptq, WhoseOrderIsMinusOneForAllColumnsHasNone) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.g_idx", "I32", "[8]", Words(8, 0xffffffff));
  EXPECT_THAT(first_row(folder.floats("a.weight")), ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
}

TEST(QuantizedGptq, WhoseOrderNamesAGroupThatIsNotThereIsCorrupt) {
  for (const std::uint32_t wrong : {0xffffffffU, 2U}) {
    auto folder = gptq(0x77777777, "gptq");
    folder.put("a.g_idx", "I32", "[8]", Words{0, 0, wrong, 0, 1, 1, 1, 1});
    EXPECT_THAT(folder.floats("a.weight"), FailsWith(ErrorCode::kCorrupt, "column 2 is in group"));
  }
}

TEST(QuantizedGptq, WhoseOrderHasAnotherLengthIsCorrupt) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.g_idx", "I32", "[4]", Words(4));
  EXPECT_THAT(folder.open_folder(),
              FailsWith(ErrorCode::kCorrupt, "'a.g_idx' [4]: has 4 values, not 8"));
}

TEST(QuantizedGptq, WhoseScalesAreOfAnotherNumberOfGroupsIsCorrupt) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.scales", "F32", "[3,8]", Floats(24))
      .put("a.qzeros", "I32", "[3,1]", Words(3, 0x77777777));
  EXPECT_THAT(folder.open_folder(),
              FailsWith(ErrorCode::kCorrupt, "cannot be divided into that many equal groups"));
}

TEST(QuantizedGptq, OfWhichSomeWeightsAreOfEachVersionIsCorrupt) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("b.qweight", "I32", "[1,8]", Words(kRows, kCounting))
      .put("b.qzeros", "I32", "[1,1]", Words{0x88888888})
      .put("b.scales", "F32", "[1,8]", Floats(kRows, 1));
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "others have \"gptq_v2\""));
}

TEST(QuantizedGptq, BesideAWeightOfTheSameNameIsAmbiguous) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.weight", "F32", "[1]", Floats{1});
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kAmbiguous, "is stored twice"));
}

// --- compressed-tensors ------------------------------------------------------------------------

QuantFolder compressed(const std::string& group = "4") {
  QuantFolder folder;
  folder.put("a.weight_packed", "I32", "[2,1]", Words(2, kCounting))
      .put("a.weight_scale", "F32", "[2,2]", Floats{1, 2, 1, 2})
      .put("a.weight_shape", "I64", "[2]", std::vector<std::int64_t>{2, 8})
      .config(R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets":
                  ["Linear"], "weights": {"num_bits": 4, "group_size": )" +
              group + "}}}}");
  return folder;
}

TEST(QuantizedCompressed, AddsTheMiddleToItsCodes) {
  EXPECT_THAT(first_row(compressed().floats("a.weight")),
              ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
}

TEST(QuantizedCompressed, WhoseConfigStatesAnotherGroupSizeIsReadByItsScales) {
  EXPECT_THAT(first_row(compressed("128").floats("a.weight")),
              ElementsAre(-8, -7, -6, -5, -8, -6, -4, -2));
}

TEST(QuantizedCompressed, WhoseStatedShapeIsNotThatOfItsCodesIsCorrupt) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{3, 8}, {2, 9}, {2, 0}, {-2, 8}, {2, std::int64_t{1} << 62}}) {
    auto folder = compressed();
    folder.put("a.weight_shape", "I64", "[2]", shape);
    EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "a.weight_"));
  }
}

TEST(QuantizedCompressed, WhoseZeroPointsAreOfOtherRowsIsCorrupt) {
  auto folder = compressed();
  folder.put("a.weight_zero_point", "I32", "[2,2]", Words(4));
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "weight_zero_point"));
}

TEST(QuantizedCompressed, WhoseScaleIsNotANumberIsCorrupt) {
  auto folder = compressed();
  folder.put("a.weight_scale", "BOOL", "[2,2]", std::vector<std::uint8_t>(4));
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "values cannot be scales"));
}

// --- float8 and FP4 ----------------------------------------------------------------------------

using Bytes = std::vector<std::uint8_t>;

TEST(QuantizedFloat8, HasScalesForBlocksOfWhichTheLastAreCut) {
  QuantFolder folder;
  folder.put("a.weight", "F8_E4M3", "[3,3]", Bytes(9, kFloat8One))
      .put("a.weight_scale_inv", "F32", "[2,2]", Floats{1, 2, 3, 4})
      .config(R"({"quant_method": "fp8", "weight_block_size": [2, 2]})");
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(1, 1, 2, 1, 1, 2, 3, 3, 4)));
}

TEST(QuantizedFloat8, WithScalesOfNoBlocksIsCorrupt) {
  QuantFolder folder;
  folder.put("a.weight", "F8_E4M3", "[3,3]", Bytes(9, kFloat8One))
      .put("a.weight_scale_inv", "F32", "[2,2]", Floats{1, 2, 3, 4})
      .config(R"({"quant_method": "fp8"})");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "a.weight_scale_inv"));
}

TEST(QuantizedFloat8, WithoutSettingsIsListedInItsPartsAsItsScalesMayBeDivisors) {
  for (const std::string scale : {"weight_scale_inv", "weight_scale", "scale_weight", "scale"}) {
    SCOPED_TRACE(scale);
    QuantFolder folder;
    folder.put("a.weight", "F8_E4M3", "[1,2]", Bytes(2, kFloat8One))
        .put("a." + scale, "F32", "[1]", Floats{2});
    const auto checkpoint = folder.open_folder();
    EXPECT_THAT(checkpoint->tensors(), SizeIs(2));
    folder.config(R"({"quant_method": "fp8"})");
    EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(2, 2)));
  }
}

TEST(QuantizedFloat8, IgnoresAnUnwrittenScaleOfAWeightThatIsNotQuantized) {
  QuantFolder folder;
  folder.put("a.weight", "F32", "[1]", Floats{5})
      .put("a.weight_scale_inv", "F32", "[1]", Floats{4.6e-41F})
      .config(R"({"quant_method": "fp8"})");
  EXPECT_THAT(folder.floats("a.weight"), HasValue(ElementsAre(5)));
  const auto checkpoint = folder.open_folder();
  EXPECT_THAT(checkpoint->tensors(), SizeIs(1));
  EXPECT_THAT(checkpoint->notes(), ElementsAre(HasSubstr("is not used, because")));
}

TEST(QuantizedFloat4, WithoutTheScaleOfTheWholeIsCorrupt) {
  QuantFolder folder;
  folder.put("a.weight_packed", "U8", "[1,8]", Bytes(8, 0x22))
      .put("a.weight_scale", "F8_E4M3", "[1,1]", Bytes{kFloat8One})
      .config(R"({"quant_method": "compressed-tensors"})");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "weight_global_scale"));
  folder.put("a.weight_global_scale", "F32", "[1]", Floats{2});
  EXPECT_THAT(folder.floats("a.weight"), HasValue(Each(0.5F)));
}

TEST(QuantizedFloat4, WithAZeroForTheScaleOfTheWholeIsCorrupt) {
  QuantFolder folder;
  folder.put("a.weight_packed", "U8", "[1,8]", Bytes(8, 0x22))
      .put("a.weight_scale", "F8_E4M3", "[1,1]", Bytes{kFloat8One})
      .put("a.weight_global_scale", "F32", "[1]", Floats{0});
  folder.config(R"({"quant_method": "compressed-tensors"})");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "of the whole weight is 0"));
}

// --- bitsandbytes and HQQ ----------------------------------------------------------------------

QuantFolder bnb(const std::string& state) {
  QuantFolder folder;
  Floats table(16);
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(i);
  }
  folder.put("a.weight", "U8", "[6,1]", Bytes{0x01, 0x23, 0x45, 0x67, 0x89, 0xab})
      .put("a.weight.absmax", "F32", "[3]", Floats{1, 10, 100})
      .put("a.weight.quant_map", "F32", "[16]", table)
      .put("a.weight.quant_state.bitsandbytes__nf4", "U8", "[" + std::to_string(state.size()) + "]",
           Bytes(state.begin(), state.end()))
      .config(R"({"quant_method": "bitsandbytes"})");
  return folder;
}

TEST(QuantizedBitsandbytes, HasBlocksThatRunOverRowsAndTheHighHalfFirst) {
  EXPECT_THAT(bnb(R"({"shape": [2, 6], "blocksize": 4})").floats("a.weight"),
              HasValue(ElementsAre(0, 1, 2, 3, 40, 50, 60, 70, 800, 900, 1000, 1100)));
}

TEST(QuantizedBitsandbytes, WhoseStateLiesIsCorrupt) {
  for (const char* state :
       {R"({"shape": [2, 7], "blocksize": 4})", R"({"shape": [2, 6], "blocksize": 6})",
        R"({"shape": [2, 6], "blocksize": 0})", R"({"shape": [12]})", "{", ""}) {
    EXPECT_THAT(bnb(state).open_folder(), FailsWith(ErrorCode::kCorrupt, "a.weight")) << state;
  }
}

TEST(QuantizedBitsandbytes, WithoutItsTableIsCorrupt) {
  auto folder = bnb(R"({"shape": [2, 6], "blocksize": 4})");
  folder.drop("a.weight.quant_map");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "table of 16 values"));
}

QuantFolder hqq(const std::string& packing) {
  QuantFolder folder;
  folder.put("a.W_q", "U8", "[2,2]", Bytes{0x04, 0x15, 0x26, 0x37})
      .put("a.scale", "F32", "[4,1]", Floats{1, 1, 1, 1})
      .put("a.zero", "F32", "[4,1]", Floats{0, 0, 0, 0.5F})
      .put("a.shape", "I64", "[2]", std::vector<std::int64_t>{2, 4})
      .put("a.axis", "I32", "[]", Words{1})
      .put("a.group_size", "I32", "[]", Words{2})
      .put("a.packing", "U8", "[" + std::to_string(packing.size()) + "]",
           Bytes(packing.begin(), packing.end()))
      .config(R"({"quant_method": "hqq"})");
  return folder;
}

TEST(QuantizedHqq, HasTheFirstHalfOfItsGroupsInTheHighHalves) {
  EXPECT_THAT(hqq("4bit_u8").floats("a.weight"),
              HasValue(ElementsAre(0, 1, 2, 3, 4, 5, 5.5F, 6.5F)));
}

TEST(QuantizedHqq, OfAPackingThatIsNotKnownIsNamed) {
  EXPECT_THAT(hqq("4bit_32").open_folder(), FailsWith(ErrorCode::kUnsupported, "'4bit_32'"));
}

TEST(QuantizedHqq, WhoseScalesAreQuantizedIsNamed) {
  auto folder = hqq("4bit_u8");
  folder.put("a.quant_scale", "U8", "[]", Bytes{1});
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kUnsupported, "quantized themselves"));
}

TEST(QuantizedHqq, WhoseShapeIsNotThatOfItsCodesIsCorrupt) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{2, 5}, {-2, -4}, {0, 4}}) {
    auto folder = hqq("4bit_u8");
    folder.put("a.shape", "I64", "[2]", shape);
    EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "a."));
  }
}

// --- all of them -------------------------------------------------------------------------------

TEST(QuantizedCheckpoints, WhoseConfigIsNotJsonAreCorrupt) {
  auto folder = gptq(0x77777777, "gptq");
  folder.config("{");
  EXPECT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "config.json: byte"));
}

TEST(QuantizedCheckpoints, ListTheirPartsAndFloatsForInspection) {
  const auto folder = gptq(0x77777777, "gptq");
  ASSERT_THAT(folder.open_folder(), IsOk());
  const std::vector<std::filesystem::path> paths{folder.dir().path()};
  OpenOptions options;
  options.selection = Selection::kEverything;
  EXPECT_THAT(open_checkpoint(paths, options)->tensors(), SizeIs(1));
  options.stored_parts = true;
  EXPECT_THAT(open_checkpoint(paths, options)->tensors(), SizeIs(4));
}

TEST(QuantizedCheckpoints, ThatContradictThemselvesAreListedInParts) {
  auto folder = gptq(0x77777777, "gptq");
  folder.put("a.g_idx", "I32", "[4]", Words(4));
  ASSERT_THAT(folder.open_folder(), FailsWith(ErrorCode::kCorrupt, "a.g_idx"));
  const std::vector<std::filesystem::path> paths{folder.dir().path()};
  EXPECT_THAT(open_checkpoint(paths, {.selection = Selection::kEverything})->tensors(), SizeIs(4));
}

// --- limits ------------------------------------------------------------------------------------

// Joins both weights as often as that.
Status join(Checkpoint& checkpoint, const std::string& name, std::size_t times) {
  std::string keys = R"("a.weight", "b.weight")";
  for (std::size_t i = 1; i < times; ++i) {
    keys += R"(, "a.weight", "b.weight")";
  }
  const auto json = parse_json("{\"" + name + R"(": {"concat": [)" + keys + R"(], "dim": 0}})", 8);
  return add_derived_tensors(checkpoint, *parse_derived(*json), 4);
}

TEST(JoinedQuantizedWeights, CountByTheirCodesAgainstTheLimitOnExpansion) {
  constexpr std::size_t kManyRows = 2048;
  constexpr std::size_t kManyColumns = 5120;  // the floats of both weights have 84 MB
  QuantFolder folder;
  folder.config(
      R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": )"
      R"({"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": true}}}})");
  for (const std::string name : {"a", "b"}) {
    folder.put(name + ".weight_packed", "I32", "[2048,640]", Words(kManyRows * kManyColumns / 8))
        .put(name + ".weight_scale", "F32", "[2048,1]", std::vector<float>(kManyRows, 1))
        .put(name + ".weight_shape", "I64", "[2]",
             std::vector<std::int64_t>{kManyRows, kManyColumns});
  }
  auto checkpoint = folder.open_folder();
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(join(*checkpoint, "once", 1), IsOk());
  EXPECT_THAT(join(*checkpoint, "often", 40), FailsWith(ErrorCode::kUnsupported, "--max-expand N"));
}

}  // namespace
}  // namespace onnx_external
