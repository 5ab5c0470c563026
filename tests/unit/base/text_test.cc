#include "base/text.h"

#include <gmock/gmock.h>

#include "base/dotted_names.h"
#include "base/nearest_names.h"

namespace onnx_external {
namespace {

TEST(Quote, KeepsUtf8AndEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(quote("fc.weight"), "'fc.weight'");
  EXPECT_EQ(quote("gr\xC3\xBC\xC3\x9F"), "'gr\xC3\xBC\xC3\x9F'");
  EXPECT_EQ(quote("\x1B[31m'\\\n"), R"('\x1b[31m\x27\x5c\x0a')");
  EXPECT_EQ(quote("\xC2\x9B"), R"('\xc2\x9b')");
  EXPECT_EQ(quote("\xFF"), R"('\xff')");
}

TEST(Quote, CutsLongNames) {
  EXPECT_LE(quote(std::string(1'000'000, 'x')).size(), kMaxQuotedBytes + 10);
}

TEST(QuoteList, CountsWhatItLeavesOut) {
  const std::vector<std::string> names{"a", "b", "c"};
  EXPECT_EQ(quote_list(names, 2), "'a', 'b' and 1 more");
  EXPECT_EQ(quote_list(names, 3), "'a', 'b', 'c'");
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndCutSequences) {
  EXPECT_TRUE(is_utf8("\xF0\x9F\x98\x80"));
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xE2\x82", "\xF5\x80\x80\x80", "\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(HexNumber, ReadsWhatHexTextWritesAndNothingElse) {
  EXPECT_EQ(hex_text(0), "00000000");
  EXPECT_EQ(hex_text(0x1a2b3c4d), "1a2b3c4d");
  EXPECT_EQ(hex_number(hex_text(0xffffffff)), 0xffffffffU);
  for (const char* text :
       {"", "1a2b3c4", "1a2b3c4d5", "1a2b3c4g", "-1a2b3c4", " 1a2b3c4", "0x1a2b3c"}) {
    EXPECT_EQ(hex_number(text), std::nullopt) << text;
  }
}

TEST(DottedNames, HaveWholeComponents) {
  EXPECT_TRUE(contains_components("model.mlp.gate.weight", "gate"));
  EXPECT_TRUE(contains_components("model.mlp.gate.weight", "mlp.gate"));
  EXPECT_TRUE(contains_components("gate", "gate"));
  EXPECT_TRUE(contains_components("gate_up.gate", "gate"));
  EXPECT_FALSE(contains_components("model.mlp.gate_proj.weight", "mlp.gate"));
  EXPECT_FALSE(contains_components("model.mlp", "model.mlp.gate"));
}

TEST(Patterns, StandForTheWholeName) {
  EXPECT_TRUE(matches_pattern("model.layers.0.mlp.gate", "*.gate"));
  EXPECT_TRUE(matches_pattern("model.layers.0.mlp.gate", "model.*.?.mlp*gate*"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_FALSE(matches_pattern("model.layers.0.mlp.gate", "gate"));
  EXPECT_FALSE(matches_pattern("gate", "gate?"));
  EXPECT_FALSE(matches_pattern("", "?"));
  EXPECT_FALSE(matches_pattern(std::string(10000, 'a'), std::string(100, '*') + "b"));
}

TEST(NearestNames, OffersTheClosestFirst) {
  const std::vector<std::string_view> names{"layer.1.weight", "layer.0.weight", "head"};
  EXPECT_THAT(NearestNames().of("layer.0.weights", names, 2), testing::ElementsAre(1, 0));
  EXPECT_THAT(NearestNames().of("zzzzzzzz", names, 2), testing::IsEmpty());
}

}  // namespace
}  // namespace onnx_external
