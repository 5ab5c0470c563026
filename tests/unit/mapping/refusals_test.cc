#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

TEST(MappingRefusals, LeftOverInputsInOneRunAtAnEndAreTheCallers) {
  MappingCase c;
  c.input("ids");
  c.input("mask");
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.map()->inputs_left, ElementsAre("ids", "mask"));
}

TEST(MappingRefusals, ALeftOverInputElsewhereIsAMissingWeight) {
  MappingCase c;
  c.input("ids");
  c.input("w");
  c.input("v.kernel");
  c.key("w");
  c.key("v.kernal");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "nearest left-over key 'v.kernal'"));
  c.options.inputs = {"ids", "v.kernel"};
  EXPECT_THAT(c.map()->inputs_left, ElementsAre("ids", "v.kernel"));
  c.options.inputs = {"ids"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'v.kernel'"));
}

TEST(MappingRefusals, AMissingWeightBesideTheCallersInputsIsSeenByItsName) {
  MappingCase c;
  c.input("ids");
  c.input("conv1.weight");
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'conv1.weight'"));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.map()->slots_left, ElementsAre("conv1.weight"));
}

TEST(MappingRefusals, AnUndefinedNameThatStaysOpenNamesItsConsumer) {
  MappingCase c;
  c.open("w");
  c.open("val_7");
  c.key("w");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "used by MatMul 'node'"));
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "optimize=False"));
}

TEST(MappingRefusals, OldAndNewWeightsAreNotMixed) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::Conv_1", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.key("fc.weight");
  c.key("conv.weight", {3, 3});
  c.key("bn.running_mean", {3});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'onnx::Conv_1' keep their data"));
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "BatchNorm was folded"));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.map()->initializers_kept, ElementsAre("onnx::Conv_1"));
}

TEST(MappingRefusals, ConstantsKeepTheirDataWhenNoFloatKeyIsLeft) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("mean", SlotKind::kInitializer, SymbolicShape{3});
  c.key("fc.weight");
  c.key("steps", {}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, FoldedWeightsDoNotPassForTheCallersInputs) {
  MappingCase c;
  c.input("x", {1, 3});
  c.input("onnx::Conv_1", {4, 4});
  c.input("fc.kernel");
  c.key("fc.kernel");
  c.key("conv.weight", {4, 4});
  c.key("bn.running_mean", {4});
  EXPECT_THAT(c.map(),
              FailsWith(ErrorCode::kNotFound, "'onnx::Conv_1' has no key, but the type and shape"));
  c.options.inputs = {"x", "onnx::Conv_1"};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, WeightsMergedWithoutATraceAreSeen) {
  MappingCase c;
  c.open("a.weight").consumer_count = 2;
  c.key("a.weight");
  c.key("b.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "'b.weight', of the same type and shape"));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, AnIdentityThatKeepsALostWeightIsSeen) {
  MappingCase c;
  c.open("a.weight").consumer_count = 2;
  c.slot("b.weight", SlotKind::kIdentityOutput, SymbolicShape{2, 2}).merged_into = "a.weight";
  c.key("a.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "made equal to 'a.weight' at export"));
  c.options.ties = {{"b.weight", "a.weight"}};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, TheSameKeyTwiceIsAmbiguous) {
  MappingCase c;
  c.open("w");
  c.key("w");
  c.key("w").argument = 1;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "in checkpoint 1 and in checkpoint 2"));
}

TEST(MappingRefusals, NothingInCommonListsBothSides) {
  MappingCase c;
  c.open("alpha");
  c.key("beta");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "slots are 'alpha', keys are 'beta'"));
  c.keys.keys.clear();
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "the checkpoint has no tensors"));
  c.key("beta");
  c.graph.slots.clear();
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "the graph has no slot to fill"));
}

TEST(MappingRefusals, KeysWithoutASlotAreSkippedKeptOrRefused) {
  MappingCase c;
  c.open("w");
  c.key("w");
  c.key("extra", {5});
  EXPECT_EQ(c.map()->unmatched_keys.size(), 1U);
  c.options.unmatched = Unmatched::kError;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "--unmatched skip"));
  c.options.unmatched = Unmatched::kKeep;
  EXPECT_THAT(c.pairs(), ElementsAre("w<-w (exact)", "<-extra (kept)"));
  c.graph.defined_names = {"extra"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kInvalidArgument, "already defines 'extra'"));
}

TEST(MappingRefusals, APrefixThatNoKeyHasIsNotFound) {
  MappingCase c;
  c.open("w");
  c.key("model.w");
  c.options.prefix = "modle";
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "keys start with 'model'"));
}

}  // namespace
}  // namespace onnx_external
