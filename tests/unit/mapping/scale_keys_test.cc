// Float8 weights that other keys scale: quantized checkpoints, whatever the scales are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::HasSubstr;

// Two linear layers with float8 weights, and a graph of floats.
MappingCase float8_case() {
  MappingCase c;
  for (const std::string name : {"net.fc1", "net.fc2"}) {
    c.slot(name + ".weight", SlotKind::kInitializer, SymbolicShape{128, 64});
    c.slot(name + ".bias", SlotKind::kInitializer, SymbolicShape{128});
    c.key(name + ".weight", {128, 64}).dtype = DType::kFloat8E4M3Fn;
    c.key(name + ".bias", {128});
  }
  c.options.casts = Casts::kAllow;
  return c;
}

void expect_quantized(const MappingCase& c) {
  const auto refused = c.map();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("the checkpoint is quantized"));
  const auto& details = refused.error().details;
  EXPECT_TRUE(details == nullptr || details->remedies.empty());
}

TEST(ScaleKeys, MakeAFloat8CheckpointAQuantizedOneUnderAnyName) {
  const std::vector<std::pair<std::string, Shape>> scales = {
      {"net.fc1.scale_weight", {}},
      {"net.fc1.s", {1}},
      {"net.fc1.weight.inv", {128, 1}},
      {"scales.net.fc1", {}},
      {"scales.fc1", {128}},
      {"amax.net.fc1.weight", {}},
      {"net_fc1_scale", {}},
      {"net.fc1.blocks", {4, 2}},
      {"net.fc1.dequant", {256}},
      {"all_scales", {2}},
      {"quant.net.fc1.factor", {1, 1}},
  };
  for (const auto& [name, shape] : scales) {
    SCOPED_TRACE(name);
    MappingCase c = float8_case();
    c.key(name, shape);
    expect_quantized(c);
    c.options.casts = Casts::kRefuse;  // no advice to convert the types
    expect_quantized(c);
  }
}

TEST(ScaleKeys, AreNotLeftOutOrKeptLikeOtherKeysUnlessTheyAreIgnored) {
  MappingCase c = float8_case();
  c.key("net.fc1.scale_weight", {});
  c.key("net.fc3.weight", {2});
  for (const Unmatched unmatched : {Unmatched::kSkip, Unmatched::kKeep}) {
    c.options.unmatched = unmatched;
    EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch, "'net.fc1.scale_weight' scales "));
    c.options.ignore = {"scale"};
    EXPECT_THAT(c.map(), IsOk());
    c.options.ignore.clear();
  }
}

TEST(ScaleKeys, AreNotTheOnesOfOtherModules) {
  MappingCase c = float8_case();
  EXPECT_THAT(c.map(), IsOk());
  c.key("decoder.fc9.weight", {64, 64}).dtype = DType::kFloat8E4M3Fn;
  c.key("decoder.fc9.bias", {64});
  c.key("decoder.fc9.scale", {});
  c.key("decoder.net.fc1.bias", {128});
  EXPECT_THAT(c.map(), IsOk());
}

TEST(ScaleKeys, AreIgnoredForWeightsThatTheGraphTakesAsFloat8) {
  MappingCase c = float8_case();
  for (Slot& slot : c.graph.slots) {
    if (slot.name.ends_with("weight")) {
      slot.elem_type = onnx_data_type(DType::kFloat8E4M3Fn);
    }
  }
  c.key("scales.net.fc1", {});
  EXPECT_THAT(c.map(), IsOk());
}

TEST(ScaleKeys, AreIgnoredForFloatsOfOtherTypes) {
  MappingCase c = float8_case();
  for (MappingKey& key : c.keys.keys) {
    key.dtype = DType::kFloat16;
  }
  c.key("scales.net.fc1", {});
  EXPECT_THAT(c.map(), IsOk());
}

TEST(ScaleKeys, AreNotMissedAmongTypesThatOnlyDiffer) {
  MappingCase c = float8_case();
  c.options.casts = Casts::kRefuse;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch, "net.fc1.weight"));
  EXPECT_FALSE(c.map().error().details->remedies.empty());  // --dtype slot
}

}  // namespace
}  // namespace onnx_external
