#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "onnx/graph_facts.h"
#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(MappingRefusals, IntegersBeforeTheWeightsAreTheCallers) {
  MappingCase c;
  c.input("ids").elem_type = onnx_data_type(DType::kInt64);
  c.input("mask").elem_type = onnx_data_type(DType::kBool);
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.names_with(SlotVerdict::kUserInput), ElementsAre("ids", "mask"));
  c.input("permutation").elem_type = onnx_data_type(DType::kInt64);  // a buffer
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "'permutation'"));
}

TEST(MappingRefusals, InputsThatAreNotTensorsAreListedAmongTheCallersInTheirOrder) {
  MappingCase c;
  c.input("ids").elem_type = onnx_data_type(DType::kInt64);
  c.graph.graph_inputs.emplace_back("past");  // a sequence, which is not a slot
  c.input("mask").elem_type = onnx_data_type(DType::kBool);
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.names_with(SlotVerdict::kUserInput), ElementsAre("ids", "past", "mask"));
}

TEST(MappingRefusals, AFloatInputBesideOthersMustBeConfirmed) {
  MappingCase c;
  c.input("x");
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.names_with(SlotVerdict::kUserInput), ElementsAre("x"));  // a single one
  c.graph.slots.clear();
  c.graph.graph_inputs.clear();
  c.input("x");
  c.input("cls_token");
  c.input("w");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous, "'x', 'cls_token'"));
  ASSERT_FALSE(refused.error().details->remedies.empty());
  EXPECT_EQ(refused.error().details->remedies[0].option, RemedyOption::kInputs);
  EXPECT_EQ(refused.error().details->remedies[0].value, "x");
  EXPECT_THAT(refused.error().details->remedies[0].when, ::testing::HasSubstr("'cls_token'"));
  c.options.inputs = {"x"};
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"cls_token"}));
  c.options.inputs = {"x", "cls_token"};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, AGraphThatWasSavedWithoutItsConstantsIsToBeSavedWithThem) {
  MappingCase c;
  c.open("fc.weight").origin = SlotOrigin::kParameter;
  c.open("embeddings.position_ids");
  c.open("places").read_as_buffer = true;
  c.slot("scale", SlotKind::kInitializer, SymbolicShape{2}).has_data = false;
  c.graph.slots.back().origin = SlotOrigin::kLocalBuffer;
  c.key("fc.weight");
  const auto refused = c.map();
  ASSERT_THAT(refused,
              FailsWith(ErrorCode::kNotFound, "'embeddings.position_ids', 'places', 'sca"));
  EXPECT_THAT(
      refused.error().message,
      ::testing::StartsWith(
          "the graph was saved without its constants: save it without include_initializers=False"));
  EXPECT_TRUE(refused.error().details->remedies.empty());  // neither --map nor --partial helps
  c.open("fc.bias", {2}).origin = SlotOrigin::kParameter;
  const auto mixed = c.map();
  ASSERT_THAT(mixed, FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"fc.bias"}));
  EXPECT_FALSE(mixed.error().details->remedies.empty());
}

TEST(MappingRefusals, AStatisticThatTheCheckpointLacksIsAWeight) {
  MappingCase c;
  c.open("fc.weight");
  c.open("bn.running_mean", {2}).read_as_buffer = true;
  c.key("fc.weight");
  EXPECT_THAT(c.map(),
              FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"bn.running_mean"}));
}

TEST(MappingRefusals, AnInputThatALeftOverKeyWouldFitMustBeConfirmed) {
  MappingCase c;
  c.input("x", {4, 4});
  c.input("w");
  c.key("w");
  c.key("renamed.weight", {4, 4});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "'x'"));
  c.options.inputs = {"x"};
  EXPECT_EQ(c.map()->unused_modules, (std::vector<UnusedModule>{{"renamed", 1}}));
}

TEST(MappingRefusals, TheOptionToPasteHasAllInputsWhoseNamesTheExporterMadeUp) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.input("onnx::Gemm_0", {3, 2});
  c.input("onnx::Add_1", {6});
  c.key("fc.weight");
  c.key("ema.bias", {6});
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous, "'onnx::Add_1'"));
  EXPECT_EQ(refused.error().details->remedies[0].value, "onnx::Gemm_0,onnx::Add_1");
}

TEST(MappingRefusals, ALeftOverInputElsewhereIsAMissingWeight) {
  MappingCase c;
  c.input("ids");
  c.input("w");
  c.input("v.kernel");
  c.key("w");
  c.key("v.kernal");
  c.options.unmatched = Unmatched::kStrict;
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, "'v.kernel'"));
  EXPECT_THAT(refused.error().details->lists[0].items[0].candidates, ElementsAre("v.kernal"));
  c.options.inputs = {"ids", "v.kernel"};
  EXPECT_THAT(c.names_with(SlotVerdict::kUserInput), ElementsAre("ids", "v.kernel"));
  c.options.inputs = {"ids"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'v.kernel'"));
}

TEST(MappingRefusals, AKeyIsShownAsTheCheckpointHasItAndAsItWasRenamed) {
  MappingCase c;
  c.open("block.one.weight");
  c.open("block.one.kernel");
  c.key("layer.1.weight");
  c.key("layer.1.kernal");
  c.options.renames = {{"layer.1", "block.one", false}};
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, "'block.one.kernel'"));
  const std::vector<ErrorList>& lists = refused.error().details->lists;
  ASSERT_EQ(lists.size(), 2U);
  EXPECT_THAT(lists[0].items[0].candidates, ElementsAre("layer.1.kernal"));
  EXPECT_EQ(lists[1].items[0].name, "layer.1.kernal");
  EXPECT_EQ(lists[1].items[0].note, "renamed 'block.one.kernal'");
  c.options.prefix = "head";
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "once renamed, keys start with 'block'"));
}

TEST(MappingRefusals, AMissingWeightBesideTheCallersInputsIsSeenByItsName) {
  MappingCase c;
  c.input("ids");
  c.input("conv1.weight");
  c.input("w");
  c.key("w");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'conv1.weight'"));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.names_with(SlotVerdict::kMissing), ElementsAre("conv1.weight"));
}

TEST(MappingRefusals, AnUndefinedNameThatStaysOpenNamesItsConsumer) {
  MappingCase c;
  c.open("w");
  c.open("val_7");
  c.key("w");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, "'val_7'"));
  EXPECT_EQ(refused.error().details->lists[0].items[0].note, "used by MatMul 'node'");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "optimize=False"));
}

TEST(MappingRefusals, OldAndNewWeightsAreNotMixed) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::Conv_1", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.key("fc.weight");
  c.key("conv.weight", {3, 3});
  c.key("bn.running_mean", {3});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"onnx::Conv_1"}));
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "a BatchNorm that the graph lacks"));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.names_with(SlotVerdict::kStale), ElementsAre("onnx::Conv_1"));
}

TEST(MappingRefusals, NamedDataThatNoKeyReplacesIsAMissingWeight) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("mean", SlotKind::kInitializer, SymbolicShape{3});
  c.key("fc.weight");
  c.key("steps", {}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"mean"}));
  c.options.keep = {"mean"};
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("mean"));
  c.options.keep = {"maen"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "no tensor with data called 'maen'"));
}

TEST(MappingRefusals, ANumberIsAConstantIfNoKeyIsASingleNumber) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::Mul_4", SlotKind::kInitializer, SymbolicShape{1});
  c.key("fc.weight");
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("onnx::Mul_4"));
  c.slot("scale", SlotKind::kInitializer, SymbolicShape{});
  c.key("scale", {});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"onnx::Mul_4"}));
}

// "weight" for "fc.weight": the checkpoint is of a part of the graph's module, and the number may
// be a parameter of the rest.
TEST(MappingRefusals, ANumberIsNotAConstantIfTheKeysAreThoseOfAPart) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::Clip_9", SlotKind::kInitializer, SymbolicShape{});
  c.key("weight");
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"onnx::Clip_9"}));
  c.options.keep = {"onnx::Clip_9"};
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("onnx::Clip_9"));
}

// onnxscript's optimizer fuses Min and Max into a Clip. Its bounds have no mark of where they come
// from, and may be parameters that the checkpoint lacks.
TEST(MappingRefusals, ABoundOfAFusedClipIsNotAConstant) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2}).origin = SlotOrigin::kParameter;
  c.slot("val_3", SlotKind::kInitializer, SymbolicShape{}).consumer_op = "Clip";
  c.key("fc.weight");
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("val_3"));
  c.slot("linear_max", SlotKind::kInitializer, SymbolicShape{}).consumer_op = "Clip";
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"linear_max"}));
  c.options.keep = {"linear_max"};
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("val_3", "linear_max"));
}

TEST(MappingRefusals, FoldedWeightsDoNotPassForTheCallersInputs) {
  MappingCase c;
  c.input("x", {1, 3});
  c.input("fc.kernel");
  c.input("onnx::Conv_1", {4, 4});
  c.key("fc.kernel");
  c.key("conv.weight", {4, 4});
  c.key("bn.running_mean", {4});
  EXPECT_THAT(c.map(),
              ::testing::AllOf(
                  FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"onnx::Conv_1"}),
                  FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused, {"bn.running_mean"})));
}

TEST(MappingRefusals, WeightsMergedWithoutATraceAreSeen) {
  MappingCase c;
  c.open("a.weight").consumer_count = 2;
  c.key("a.weight");
  c.key("b.weight");
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kAmbiguous, ErrorKind::kMerged, {"a.weight"}));
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingRefusals, AnIdentityThatKeepsALostWeightIsSeen) {
  MappingCase c;
  c.open("a.weight").consumer_count = 2;
  c.slot("b.weight", SlotKind::kIdentityOutput, SymbolicShape{2, 2}).merged_into = "a.weight";
  c.key("a.weight");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, "'b.weight'"));
  EXPECT_EQ(refused.error().details->lists[0].items[0].note, "made equal to 'a.weight' at export");
  c.options.map = {{"b.weight", "a.weight"}};
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
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kSlots, {"alpha"}));
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kKeys, {"beta"}));
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
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused, {"extra"}));
  c.options.ignore = {"extr"};
  EXPECT_THAT(c.map()->keys_with({KeyVerdict::kIgnored}), ElementsAre(1));
  c.options.ignore = {};
  c.options.unmatched = Unmatched::kSkip;
  EXPECT_THAT(c.map()->keys_with({KeyVerdict::kUnused}), ElementsAre(1));
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

TEST(MappingRefusals, AQuantizedCheckpointIsNamedWithItsMethod) {
  MappingCase c;
  c.open("fc.weight");
  c.open("other.weight");
  c.key("other.weight");
  c.key("fc.qweight");
  c.key("fc.scales");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound,
                                 "quantized by GPTQ or AWQ (it has 'fc.qweight'), and its tensors "
                                 "alone do not determine how to read them; pass the folder"));
  EXPECT_TRUE(refused.error().details->remedies.empty());  // each would leave the weight out
}

TEST(MappingRefusals, AQuantizedWeightUnderTheNameOfTheFloatOneIsNamed) {
  MappingCase c;
  c.open("fc.weight");
  c.key("fc.weight").dtype = DType::kInt8;
  c.key("fc.SCB", {2});
  c.key("other.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch,
                                 "the checkpoint is quantized by bitsandbytes (it has 'fc.SCB')"));
}

TEST(MappingRefusals, AQuantizedGraphIsNamedWithItsOperator) {
  MappingCase c;
  c.open("bias");
  c.slot("fc.weight_quantized", SlotKind::kInitializer, SymbolicShape{2, 2}).consumer_op =
      "DequantizeLinear";
  c.key("bias");
  c.key("fc.weight");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound,
                                 "the graph is quantized ('fc.weight_quantized' is read by "
                                 "DequantizeLinear); use the checkpoint with the float graph"));
  EXPECT_TRUE(refused.error().details->remedies.empty());
}

TEST(MappingRefusals, WeightsThatAreConstantNodesAreNamed) {
  MappingCase c;
  c.open("bias");
  c.graph.constants = {{"fc.weight", kFloatType, {2, 2}}};
  c.graph.defined_names = {"fc.weight"};
  c.key("bias");
  c.key("fc.weight");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound,
                                 "1 key is the value of Constant nodes in the graph: 'fc.weight', "
                                 "which a checkpoint cannot replace"));
  EXPECT_TRUE(refused.error().details->remedies.empty());
  c.graph.constants.clear();  // a fill
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound,
                                 "nodes of the graph compute the values of 'fc.weight'"));
  c.graph.slots.clear();
  c.keys.keys.erase(c.keys.keys.begin());
  c.graph.constants = {{"val_3", kFloatType, {2, 2}}};
  c.graph.defined_names = {"val_3"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound,
                                 "the weights of the graph are in Constant nodes: 'val_3'"));
}

TEST(MappingRefusals, OfSeveralGraphsNameEachGraphAndListKeysOnce) {
  MappingCase one;
  one.open("a");
  one.open("lost");
  one.key("a");
  one.key("more");
  one.key("adapter.lora_A.weight");
  MappingCase two;
  two.open("a");
  two.open("b");
  const GraphToMap graphs[] = {{"one.onnx", &one.graph}, {"two.onnx", &two.graph}};
  const auto refused = map_graphs(graphs, one.keys, {});
  ASSERT_FALSE(refused);
  std::vector<std::pair<ErrorKind, std::string>> lists;
  for (const ErrorList& list : refused.error().details->lists) {
    lists.emplace_back(list.kind, list.owner);
  }
  EXPECT_THAT(lists,
              ElementsAre(Pair(ErrorKind::kAdapter, ""), Pair(ErrorKind::kMissing, "one.onnx"),
                          Pair(ErrorKind::kMissing, "two.onnx"), Pair(ErrorKind::kUnused, "")));
  std::size_t maps = 0;
  for (const Remedy& remedy : refused.error().details->remedies) {
    maps += remedy.option == RemedyOption::kMap ? 1 : 0;
  }
  EXPECT_EQ(maps, 1U);
}

TEST(MappingRefusals, OfAGraphAloneDoNotNameIt) {
  MappingCase c;
  c.open("a");
  c.open("lost");
  c.key("a");
  const GraphToMap graph{"one.onnx", &c.graph};
  const auto refused = map_graphs({&graph, 1}, c.keys, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, c.map().error().message);
  c.options.keep = {"nothing"};
  EXPECT_EQ(map_graphs({&graph, 1}, c.keys, c.options).error().message, c.map().error().message);
}

TEST(MapGraphs, OfAGraphAloneTakesEntriesForItAndLeavesOutThoseOfOthers) {
  MappingCase c;
  c.open("a");
  c.key("x");
  c.options.map = {{.slot = "a", .key = "x", .model = "one.onnx"},
                   {.slot = "none", .key = "x", .model = "other.onnx"}};
  const GraphToMap graph{"one.onnx", &c.graph};
  const auto mapped = map_graphs({&graph, 1}, c.keys, c.options);
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(mapped->front().pairs.size(), 1U);
}

}  // namespace
}  // namespace onnx_external
