#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "onnx/graph_facts.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

Model slots_model(GraphBuilder& builder) {
  auto model = Model::from_proto(builder.model(), {});
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

const Slot* find(const Model& model, const std::string& name) {
  const auto& slots = model.facts().slots;
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return s.name == name; });
  return found == slots.end() ? nullptr : &*found;
}

TEST(Slots, AWeightThatABatchNormalizationReadsAsVarianceTooIsMarked) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 2}).input("w", kFloat, {2}).input("b", kFloat, {2});
  b.input("m", kFloat, {2}).node("BatchNormalization", {"x", "w", "b", "m", "w"}, {"y"});
  const Model model = slots_model(b);
  EXPECT_TRUE(find(model, "w")->scale_and_statistic);
  EXPECT_FALSE(find(model, "b")->scale_and_statistic);
}

TEST(Slots, FindsTheFourFormsInTheirOrder) {
  GraphBuilder b;
  b.input("x", kFloat, {kAnySize, 4}).input("w", kFloat, {4, 4});
  b.initializer("c", kFloat, {1}, "abcd");
  b.node("MatMul", {"x", "w"}, {"y"}).node("Add", {"y", "open"}, {"z"});
  b.node("Identity", {"w"}, {"w2"}).node("MatMul", {"z", "w2"}, {"o"});
  b.node("Mul", {"o", "c"}, {"out"}).output("out", kFloat, {4, 4});
  const Model model = slots_model(b);
  std::vector<std::pair<std::string, SlotKind>> seen;
  for (const Slot& slot : model.facts().slots) {
    seen.emplace_back(slot.name, slot.kind);
  }
  EXPECT_THAT(seen, ElementsAre(std::pair("x", SlotKind::kGraphInput),
                                std::pair("w", SlotKind::kGraphInput),
                                std::pair("c", SlotKind::kInitializer),
                                std::pair("open", SlotKind::kUndefinedName),
                                std::pair("w2", SlotKind::kIdentityOutput)));
  EXPECT_THAT(find(model, "x")->shape, SymbolicShape({std::nullopt, 4}));
  EXPECT_EQ(find(model, "w")->input_index, 1U);
  EXPECT_EQ(find(model, "w")->consumer_count, 2U);
  EXPECT_EQ(find(model, "w")->consumer_op, "MatMul");
  EXPECT_EQ(find(model, "w")->consumer_name, "MatMul_0");
  EXPECT_TRUE(find(model, "c")->has_data);
  EXPECT_EQ(find(model, "w2")->merged_into, "w");
  EXPECT_EQ(find(model, "w2")->shape, SymbolicShape({4, 4}));
  EXPECT_EQ(find(model, "w2")->elem_type, kFloat);
}

TEST(Slots, AnUndefinedNameTakesItsFormFromValueInfo) {
  GraphBuilder b;
  b.input("x", kFloat, {2, 2}).value_info("w", kInt64, {2, 3});
  b.node("MatMul", {"x", "w"}, {"y"}).output("y", kFloat, {2, 3});
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "w")->elem_type, kInt64);
  EXPECT_EQ(find(model, "w")->shape, SymbolicShape({2, 3}));
}

TEST(Slots, AnUndefinedNameTakesItsTypeFromAConsumerThatKeepsIt) {
  GraphBuilder b;
  b.input("x", kFloat, {2, 2}).input("i", kInt64, {1});
  b.node("Gather", {"table", "ids"}, {"rows"}).value_info("rows", kFloat, {1, 2});
  b.node("Shape", {"other"}, {"s"}).value_info("s", kInt64, {1});
  b.output("rows", kFloat, {1, 2});
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "table")->elem_type, kFloat);
  EXPECT_EQ(find(model, "ids")->elem_type, 0) << "indices do not have the type of the output";
  EXPECT_EQ(find(model, "other")->elem_type, 0) << "Shape does not keep the type";
  EXPECT_FALSE(find(model, "table")->shape.has_value());
}

TEST(Slots, NamesInSubgraphsResolveOutward) {
  GraphBuilder b;
  b.input("cond", onnx::TensorProto::BOOL, {}).input("w", kFloat, {2});
  b.node("If", {"cond"}, {"y"});
  b.begin_subgraph("then_branch").initializer("own", kFloat, {1}, "abcd");
  b.node("Add", {"w", "own"}, {"t0"}).node("Add", {"t0", "open"}, {"t"}).output("t", kFloat, {2});
  b.end_subgraph().begin_subgraph("else_branch");
  b.node("Neg", {"open"}, {"e"}).output("e", kFloat, {2}).end_subgraph();
  b.output("y", kFloat, {2});
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "w")->consumer_count, 1U);
  EXPECT_EQ(find(model, "own")->graph, 1U);
  ASSERT_NE(find(model, "open"), nullptr);
  EXPECT_EQ(find(model, "open")->graph, 0U);
  EXPECT_EQ(find(model, "open")->consumer_count, 2U);
  EXPECT_EQ(find(model, "t0"), nullptr);
}

TEST(Slots, NamesOfFunctionsAreNotOuterScope) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Custom", {"x"}, {"y"}).output("y", kFloat, {1});
  auto* function = b.model().add_functions();
  function->set_name("Custom");
  auto* node = function->add_node();
  node->set_op_type("Add");
  node->add_input("a");
  node->add_input("undefined_in_function");
  node->add_output("b");
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "undefined_in_function"), nullptr);
}

TEST(Slots, AChainOfIdentitiesIsAChainOfSlots) {
  GraphBuilder b;
  b.initializer("a", kFloat, {3}, "abcdabcdabcd");
  b.node("Identity", {"a"}, {"b"}).node("Identity", {"b"}, {"c"}).node("Neg", {"c"}, {"y"});
  b.output("y", kFloat, {3});
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "c")->merged_into, "b");
  EXPECT_EQ(find(model, "c")->shape, SymbolicShape(1, 3));
}

TEST(Slots, AnIdentityInASubgraphOverAnOuterWeightIsASlotThere) {
  GraphBuilder b;
  b.input("cond", onnx::TensorProto::BOOL, {}).input("w", kFloat, {2});
  b.node("Add", {"w", "w"}, {"s"}).node("If", {"cond"}, {"y"});
  b.begin_subgraph("then_branch").node("Identity", {"w"}, {"w2"}).node("Neg", {"w2"}, {"t"});
  b.output("t", kFloat, {2}).end_subgraph().output("y", kFloat, {2});
  const Model model = slots_model(b);
  ASSERT_NE(find(model, "w2"), nullptr);
  EXPECT_EQ(find(model, "w2")->kind, SlotKind::kIdentityOutput);
  EXPECT_EQ(find(model, "w2")->graph, 1U);
  EXPECT_EQ(find(model, "w2")->merged_into, "w");
  EXPECT_EQ(find(model, "w2")->consumer_op, "Neg");
  EXPECT_EQ(find(model, "w")->consumer_count, 3U);
  EXPECT_EQ(find(model, "w")->consumer_op, "Add");
}

TEST(Slots, AnIdentityOfAComputedValueIsNotASlot) {
  GraphBuilder b;
  b.input("x", kFloat, {3}).node("Neg", {"x"}, {"n"}).node("Identity", {"n"}, {"y"});
  b.output("y", kFloat, {3});
  EXPECT_EQ(find(slots_model(b), "y"), nullptr);
}

TEST(Slots, GraphOutputsCountAsConsumers) {
  GraphBuilder b;
  b.input("w", kFloat, {3}).output("w", kFloat, {3});
  const Model model = slots_model(b);
  EXPECT_EQ(find(model, "w")->consumer_count, 1U);
  EXPECT_EQ(find(model, "w")->consumer_op, "");
}

TEST(Slots, AnInputWithAnInitializerIsOneSlot) {
  GraphBuilder b(3);
  b.input("w", kFloat, {1}).initializer("w", kFloat, {1}, "abcd");
  b.node("Neg", {"w"}, {"y"}).output("y", kFloat, {1});
  const Model model = slots_model(b);
  ASSERT_EQ(model.facts().slots.size(), 1U);
  EXPECT_EQ(model.slot_name(0), model.facts().slots[0].name);
  EXPECT_EQ(model.facts().slots[0].kind, SlotKind::kInitializer);
  EXPECT_THAT(model.facts().graph_inputs, ElementsAre("w"));
}

TEST(Slots, WhatFeedsScalesMustStayInline) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 1, 2, 2}).initializer("scales", kFloat, {1}, "abcd");
  b.node("Identity", {"scales"}, {"s"}).node("Resize", {"x", "", "s"}, {"y"});
  b.output("y", kFloat, {1, 1, 4, 4});
  const Model model = slots_model(b);
  EXPECT_TRUE(must_stay_inline(model, "scales"));
  EXPECT_FALSE(must_stay_inline(model, "x"));
}

// Copies of the name would be 2 GB before they were made unique.
TEST(Slots, NamesThatFeedManyScalesAreKeptOnce) {
  GraphBuilder b;
  const std::string name(200'000, 'a');
  std::vector<std::string> inputs(10'001, "b");
  inputs[0] = "x";
  b.input("x", kFloat, {1}).node("Identity", {name}, {"b"}).node("Resize", inputs, {"y"});
  const Model model = slots_model(b);
  EXPECT_THAT(model.facts().inline_names, ElementsAre(name, "b"));
  EXPECT_LE(model.facts().inline_names.capacity(), 16U);
}

TEST(Slots, AShapeOfARankThatNoTensorHasCountsAsNotStated) {
  GraphBuilder b;
  b.initializer("a", kFloat, std::vector<std::int64_t>(65, 1), "abcd");
  b.initializer("c", kFloat, std::vector<std::int64_t>(64, 1), "abcd");
  b.input("i", kFloat, std::vector<std::int64_t>(65, 1));
  b.node("Identity", {"a"}, {"o"}).node("Sum", {"o", "c", "i"}, {"y"});
  const Model model = slots_model(b);
  for (const char* name : {"a", "o", "i"}) {
    EXPECT_FALSE(find(model, name)->shape) << name;
  }
  EXPECT_TRUE(find(model, "c")->shape);
}

TEST(Slots, RefusesSubgraphsNestedTooDeeply) {
  GraphBuilder b;
  for (std::size_t i = 0; i <= kMaxGraphDepth; ++i) {
    b.node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  }
  EXPECT_THAT(Model::from_proto(b.model(), {}),
              FailsWith(ErrorCode::kUnsupported, "nested more than 100 deep"));
}

}  // namespace
}  // namespace onnx_external
