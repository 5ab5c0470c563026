// Weights that no runtime could use together, and those that only look like it.
#include "onnx/shape_conflict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/exporter_marks.h"
#include "support/graph_builder.h"

namespace onnx_external {
namespace {

constexpr std::int32_t kHalf = onnx::TensorProto::FLOAT16;

SuppliedValue weight(std::string_view name, const Shape& dims, std::int32_t type = kFloat) {
  return {name, type, dims};
}

// The name of the node that cannot be, or "".
std::string conflict_in(GraphBuilder& graph, const std::vector<SuppliedValue>& supplied) {
  const auto found = find_shape_conflict(graph.model().graph(), supplied);
  return found ? found->node->name() : "";
}

// A new attribute of the last node of the main graph.
onnx::AttributeProto& last_attribute(GraphBuilder& graph, const std::string& name) {
  onnx::GraphProto& main = *graph.model().mutable_graph();
  onnx::AttributeProto* attribute = main.mutable_node(main.node_size() - 1)->add_attribute();
  attribute->set_name(name);
  return *attribute;
}

void set_int(GraphBuilder& graph, const std::string& name, std::int64_t value) {
  last_attribute(graph, name).set_i(value);
}

// The protobuf classes may be older than the field.
template <typename Node>
void add_entry(Node& node, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  if constexpr (requires { node.add_metadata_props(); }) {
    *node.add_metadata_props() = entry;
  } else {
    constexpr int kNodeMetadata = 9;
    node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(
        kNodeMetadata, entry.SerializeAsString());
  }
}

void add_two_products(GraphBuilder& graph, const std::string& between) {
  graph.input("x", kFloat, {kAnySize, 8}).node("MatMul", {"x", "fc1"}, {"a"});
  graph.node(between, {"a"}, {"b"}).node("MatMul", {"b", "fc2"}, {"y"});
}

TEST(ShapeConflict, ASecondProductMustHaveTheRowsThatTheFirstOneGivesIt) {
  GraphBuilder graph;
  add_two_products(graph, "Relu");
  EXPECT_EQ(conflict_in(graph, {weight("fc1", {8, 16}), weight("fc2", {16, 4})}), "");
  const auto found = find_shape_conflict(
      graph.model().graph(), std::vector{weight("fc1", {8, 16}), weight("fc2", {20, 4})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->node->name(), "MatMul_2");
  ASSERT_EQ(found->inputs.size(), 2U);
  EXPECT_EQ(found->inputs[0].name, "b");
  EXPECT_EQ(found->inputs[0].shape, (SymbolicShape{std::nullopt, 16}));
  EXPECT_EQ(found->inputs[0].weight, "fc1");
  EXPECT_EQ(found->inputs[1].weight, "fc2");
}

TEST(ShapeConflict, NothingIsKnownBehindAnUnknownOperator) {
  GraphBuilder graph;
  add_two_products(graph, "Halve");
  EXPECT_EQ(conflict_in(graph, {weight("fc1", {8, 16}), weight("fc2", {20, 4})}), "");
  GraphBuilder other;
  add_two_products(other, "Relu");
  other.model().mutable_graph()->mutable_node(1)->set_domain("com.example");
  EXPECT_EQ(conflict_in(other, {weight("fc1", {8, 16}), weight("fc2", {20, 4})}), "");
}

TEST(ShapeConflict, WhatTheGraphStatesOfValuesInBetweenMayBeStale) {
  GraphBuilder graph;
  add_two_products(graph, "Relu");
  graph.value_info("b", kFloat, {3, 20}).output("y", kFloat, {3, 99});
  EXPECT_EQ(conflict_in(graph, {weight("fc1", {8, 16}), weight("fc2", {16, 4})}), "");
}

TEST(ShapeConflict, AGemmMustHaveTheColumnsOfItsDataAndABiasOfItsRows) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8}).node("Gemm", {"x", "fc1", "b1"}, {"a"});
  set_int(graph, "transB", 1);
  graph.node("Tanh", {"a"}, {"b"}).node("Gemm", {"b", "fc2"}, {"y"});
  set_int(graph, "transB", 1);
  const auto found = [&](const Shape& bias, const Shape& second) {
    return conflict_in(graph, {weight("fc1", {16, 8}), weight("b1", bias), weight("fc2", second)});
  };
  EXPECT_EQ(found({16}, {4, 16}), "");
  EXPECT_EQ(found({1}, {4, 16}), "");
  EXPECT_EQ(found({16}, {4, 20}), "Gemm_2");
  EXPECT_EQ(found({20}, {4, 16}), "Gemm_0");
}

TEST(ShapeConflict, ANormMustHaveTheChannelsOfTheConvolutionBeforeIt) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 3, kAnySize, kAnySize});
  graph.node("Conv", {"x", "w", "b"}, {"a"}).node("Relu", {"a"}, {"r"});
  graph.node("BatchNormalization", {"r", "s", "t", "m", "v"}, {"n"});
  const auto found = [&](std::int64_t bias, std::int64_t norm) {
    return conflict_in(graph, {weight("w", {8, 3, 5, 5}), weight("b", {bias}), weight("s", {norm}),
                               weight("t", {norm}), weight("m", {norm}), weight("v", {norm})});
  };
  EXPECT_EQ(found(8, 8), "");
  EXPECT_EQ(found(9, 8), "Conv_0");
  EXPECT_EQ(found(8, 12), "BatchNormalization_2");
}

TEST(ShapeConflict, ANormOfOldModelsMayHaveANumberForEachPosition) {
  GraphBuilder graph;
  graph.input("x", kFloat, {2, 3, 4, 4});
  graph.node("BatchNormalization", {"x", "s", "t", "m", "v"}, {"n"});
  set_int(graph, "spatial", 0);
  EXPECT_EQ(conflict_in(graph, {weight("s", {3, 4, 4}), weight("t", {3, 4, 4}),
                                weight("m", {3, 4, 4}), weight("v", {3, 4, 4})}),
            "");
}

TEST(ShapeConflict, ATransposedConvolutionHasTheChannelsOfAllItsGroups) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 6, kAnySize});
  graph.node("ConvTranspose", {"x", "w"}, {"a"});
  set_int(graph, "group", 2);
  graph.node("Conv", {"a", "v"}, {"y"});
  EXPECT_EQ(conflict_in(graph, {weight("w", {6, 4, 3}), weight("v", {5, 8, 3})}), "");
  EXPECT_EQ(conflict_in(graph, {weight("w", {6, 4, 3}), weight("v", {5, 4, 3})}), "Conv_1");
}

TEST(ShapeConflict, SumsMayBroadcastButMustHaveMatchingSizes) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, kAnySize, 8}).node("MatMul", {"x", "w"}, {"a"});
  graph.node("Add", {"bias", "a"}, {"b"}).node("LayerNormalization", {"b", "scale"}, {"y"});
  const auto found = [&](const Shape& bias, const Shape& scale) {
    return conflict_in(graph, {weight("w", {8, 16}), weight("bias", bias), weight("scale", scale)});
  };
  for (const Shape& fits : std::vector<Shape>{{}, {1}, {16}, {7, 16}, {2, 1, 1, 16}}) {
    EXPECT_EQ(found(fits, {16}), "");
  }
  EXPECT_EQ(found({20}, {16}), "Add_1");
  EXPECT_EQ(found({16}, {1, 1, 16}), "");
  EXPECT_EQ(found({16}, {1, 1, 1, 4, 4}), "");
  EXPECT_EQ(found({16}, {20}), "LayerNormalization_2");
}

TEST(ShapeConflict, TorchsConventionsAreNotRequirements) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8}).node("MatMul", {"x", "w"}, {"a"});
  graph.node("Add", {"a", "bias"}, {"y"});
  auto& sum = *graph.model().mutable_graph()->mutable_node(1);
  add_entry(sum, "pkg.torch.onnx.fx_node",
            "%y = call_function[target=torch.ops.aten.linear.default]");
  add_entry(sum, "pkg.torch.onnx.class_hierarchy",
            "['Net', 'torch.nn.modules.linear.Linear', 'aten.linear.default']");
  ASSERT_TRUE(is_linear_of_torch(sum));
  EXPECT_EQ(conflict_in(graph, {weight("w", {8, 16}), weight("bias", {5, 16})}), "");
}

TEST(ShapeConflict, AJoinOfPiecesNeedNotBeTheWhole) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8}).node("MatMul", {"x", "w"}, {"a"});
  for (const std::string half : {"0", "4"}) {
    const std::int64_t from = std::stoi(half);
    for (const auto& [name, value] :
         {std::pair<std::string, std::int64_t>("from", from), {"to", from + 4}, {"axis", 1}}) {
      graph.node("Constant", {}, {name + half});
      last_attribute(graph, "value_ints").add_ints(value);
    }
    graph.node("Slice", {"a", "from" + half, "to" + half, "axis" + half}, {"s" + half});
  }
  graph.node("Concat", {"s4", "s0"}, {"c"});
  set_int(graph, "axis", 1);
  graph.node("MatMul", {"c", "v"}, {"y"});
  EXPECT_EQ(conflict_in(graph, {weight("w", {8, 16}), weight("v", {8, 3})}), "");
  EXPECT_NE(conflict_in(graph, {weight("w", {8, 16}), weight("v", {16, 3})}), "");
}

TEST(ShapeConflict, ATransposeOfAnotherRankMayBeUndone) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, kAnySize, 8}).node("MatMul", {"x", "w"}, {"a"});
  for (const auto& [from, to] : {std::pair("a", "b"), {"b", "c"}}) {
    graph.node("Transpose", {from}, {to});
    auto& perm = last_attribute(graph, "perm");
    perm.add_ints(1);
    perm.add_ints(0);
  }
  EXPECT_EQ(conflict_in(graph, {weight("w", {8, 16})}), "");
}

TEST(ShapeConflict, BranchesAreNotJudgedAndGiveValuesOfAnyShape) {
  GraphBuilder graph;
  graph.input("c", onnx::TensorProto::BOOL, {}).input("x", kFloat, {kAnySize, 8});
  graph.node("MatMul", {"x", "fc1"}, {"a"}).node("If", {"c"}, {"b"});
  graph.begin_subgraph("then_branch").node("MatMul", {"a", "narrow"}, {"t"});
  graph.output("t", kFloat, {kAnySize, kAnySize}).end_subgraph();
  graph.begin_subgraph("else_branch").node("MatMul", {"a", "wide"}, {"e"});
  graph.output("e", kFloat, {kAnySize, kAnySize}).end_subgraph();
  graph.node("MatMul", {"b", "fc2"}, {"y"});
  EXPECT_EQ(conflict_in(graph, {weight("fc1", {8, 16}), weight("narrow", {16, 4}),
                                weight("wide", {20, 4}), weight("fc2", {4, 2})}),
            "");
}

TEST(ShapeConflict, WeightsOfOneProductHaveOneType) {
  GraphBuilder graph;
  graph.input("ids", kInt64, {kAnySize, kAnySize}).node("Gather", {"table", "ids"}, {"a"});
  graph.node("LayerNormalization", {"a", "scale"}, {"n"}).node("MatMul", {"n", "w"}, {"y"});
  const auto found = [&](std::int32_t scale, std::int32_t w) {
    return conflict_in(
        graph, {weight("table", {9, 16}), weight("scale", {16}, scale), weight("w", {16, 4}, w)});
  };
  EXPECT_EQ(found(kFloat, kFloat), "");
  EXPECT_EQ(found(kHalf, kFloat), "");
  EXPECT_EQ(found(kFloat, kHalf), "MatMul_2");
}

TEST(ShapeConflict, ASizeOfZeroAndAnotherValueOfAnInputAreNotJudged) {
  GraphBuilder graph;
  graph.input("x", kFloat, {0, 0}).input("w", kFloat, {kAnySize, kAnySize});
  graph.initializer("w", kFloat, {3, 4}, std::string(48, 'x'));
  graph.node("MatMul", {"x", "v"}, {"y"}).node("MatMul", {"y", "w"}, {"z"});
  EXPECT_EQ(conflict_in(graph, {weight("v", {8, 16})}), "");
}

TEST(ShapeConflict, AWeightInThePlaceOfAnIdentityIsThatWeight) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8}).node("Identity", {"fc1"}, {"fc2"});
  graph.node("MatMul", {"x", "fc1"}, {"a"}).node("MatMul", {"a", "fc2"}, {"y"});
  EXPECT_EQ(conflict_in(graph, {weight("fc1", {8, 16}), weight("fc2", {16, 4})}), "");
}

TEST(ShapeConflict, ManyNodesTakeNoTime) {
  GraphBuilder graph;
  graph.input("x", kFloat, {kAnySize, 8});
  std::vector<std::string> many;
  for (int i = 0; i < 20'000; ++i) {
    graph.node("MatMul", {i == 0 ? "x" : "a" + std::to_string(i), "w"},
               {"a" + std::to_string(i + 1)});
    many.push_back("a" + std::to_string(i + 1));
  }
  graph.node("Concat", many, {"c"});
  set_int(graph, "axis", 0);
  // Of the processor, since the machine may be busy. Work that grows with the square of the number
  // of nodes takes minutes.
  const std::clock_t begin = std::clock();
  EXPECT_EQ(conflict_in(graph, {weight("w", {8, 8})}), "");
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

}  // namespace
}  // namespace onnx_external
