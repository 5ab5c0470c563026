#include "onnx/matrix_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "support/matrix_graph.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Part = MatrixTensor::Part;

// An embedding, a layer, a router, a small matrix and a head.
MatrixGraph& model_of_all(MatrixGraph& graph) {
  graph.weight("embed.weight", {1000, 192}).weight("layer.weight.transposed", {192, 192});
  graph.weight("gate.weight", {192, 16}).weight("small.weight", {192, 8});
  graph.weight("head.weight", {192, 1000}).integers("k", {2});
  graph.builder().input("ids", kInt64, {2}).output("logits", kFloat, {2, 1000});
  graph.node("Gather", {"embed.weight", "ids"}, {"h"});
  graph.node("MatMul", {"h", "layer.weight.transposed"}, {"l"}).node("Relu", {"l"}, {"r"});
  graph.node("MatMul", {"r", "gate.weight"}, {"g"}).node("TopK", {"g", "k"}, {"v", "i"});
  graph.node("MatMul", {"r", "small.weight"}, {"s"}).node("ReduceMax", {"s"}, {"m"});
  return graph.node("MatMul", {"r", "head.weight"}, {"logits"});
}

Result<MatrixPlan> plan_of(MatrixGraph& graph, const QuantizeOptions& options = {}) {
  return plan_matrices(graph.model(), options);
}

std::vector<std::string> reasons(const MatrixPlan& plan) {
  std::vector<std::string> found;
  for (const GraphWeight& weight : plan.weights) {
    if (weight.reason != FloatReason::kNone) {
      found.push_back(weight.name + ": " + float_reason_text(weight.reason, weight.detail));
    }
  }
  return found;
}

std::vector<std::string> schemes(const MatrixPlan& plan) {
  std::vector<std::string> found;
  for (const ChosenMatrix& chosen : plan.matrices) {
    found.push_back(plan.weights[chosen.weight].name + ": " + scheme_text(chosen.scheme));
  }
  return found;
}

TEST(MatrixChoice, HeadAndEmbeddingHave8BitsAndRoutersStay) {
  MatrixGraph graph;
  const auto plan = plan_of(model_of_all(graph));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(schemes(*plan), ElementsAre("embed.weight: int8/64, symmetric, nearest",
                                          "layer.weight.transposed: int4/64, zero points, 5 steps",
                                          "head.weight: int8/64, symmetric, nearest"));
  EXPECT_THAT(reasons(*plan),
              ElementsAre("gate.weight: it chooses experts", "small.weight: it is small"));
}

TEST(MatrixChoice, TensorsAreCalledAfterTheWeight) {
  MatrixGraph graph;
  model_of_all(graph)
      .weight("layer.weight.scales", {1})
      .node("Relu", {"layer.weight.scales"}, {"q"});
  const auto plan = plan_of(graph);
  ASSERT_THAT(plan, IsOk());
  const ChosenMatrix& layer = plan->matrices[1];
  ASSERT_THAT(layer.tensors, SizeIs(3));
  EXPECT_EQ(layer.name_of(Part::kCodes), "layer.weight.codes");
  EXPECT_EQ(layer.name_of(Part::kScales), "layer.weight.scales_1") << "the model has the other";
  EXPECT_EQ(layer.name_of(Part::kZeroPoints), "layer.weight.zero_points");
  EXPECT_EQ(layer.name_of(Part::kTable), "");
  EXPECT_THAT(layer.tensors[0].dims, ElementsAre(192, 3, 32));
  EXPECT_THAT(layer.tensors[1].dims, ElementsAre(192, 3));
  EXPECT_THAT(layer.tensors[2].dims, ElementsAre(192, 2));
  EXPECT_EQ(layer.tensors[0].data_type, onnx::TensorProto::UINT8);
  EXPECT_EQ(layer.tensors[1].data_type, kFloat);
}

TEST(MatrixChoice, ATiedTableHasItsCodesInTwoShapes) {
  MatrixGraph graph;
  graph.weight("w", {1000, 128});
  graph.builder().input("ids", kInt64, {2}).output("y", kFloat, {2, 1000});
  graph.node("Gather", {"w", "ids"}, {"h"}).node("Transpose", {"w"}, {"t"});
  graph.node("MatMul", {"h", "t"}, {"y"});
  const auto plan = plan_of(graph);
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(plan->matrices, SizeIs(1));
  ASSERT_THAT(plan->matrices[0].tensors, SizeIs(3));
  EXPECT_THAT(plan->matrices[0].tensors[0].dims, ElementsAre(1000, 2, 64));
  EXPECT_THAT(plan->matrices[0].tensors[1].dims, ElementsAre(1000, 128));
  EXPECT_EQ(plan->matrices[0].name_of(Part::kTable), "w.table");
}

TEST(MatrixChoice, AnEmbeddingHasNoRoomForAPaddedBlock) {
  for (const auto& [columns, block] : {std::pair(96, 32U), {80, 16U}, {72, 0U}}) {
    MatrixGraph graph;
    graph.weight("w", {1000, columns}).node("Gather", {"w", "ids"}, {"h"});
    graph.weight("v", {128, 64}).builder().input("x", kFloat, {2, 128});
    graph.node("MatMul", {"x", "v"}, {"y"});
    const auto plan = plan_of(graph);
    ASSERT_THAT(plan, IsOk());
    if (block == 0) {
      EXPECT_EQ(plan->weights[0].reason, FloatReason::kBlocks);
    } else {
      EXPECT_EQ(plan->matrices[0].scheme.block, block);
    }
  }
}

TEST(MatrixChoice, TheStandardFormHasWholeBlocksAndWholeBytes) {
  for (const auto& [columns, block] : {std::pair(128, 64U), {192, 32U}, {96, 16U}, {72, 0U}}) {
    MatrixGraph graph;
    graph.builder().model().mutable_opset_import(0)->set_version(21);
    graph.weight("w", {columns, 64}).builder().input("x", kFloat, {2, columns});
    graph.node("MatMul", {"x", "w"}, {"y"}).node("ReduceMax", {"y"}, {"z"});
    QuantizeOptions options;
    options.form = QuantizedForm::kDequantizeLinear;
    const auto plan = plan_of(graph, options);
    ASSERT_THAT(plan, IsOk());
    if (block == 0) {
      EXPECT_THAT(plan->matrices, IsEmpty());
      continue;
    }
    const ChosenMatrix& chosen = plan->matrices.at(0);
    EXPECT_EQ(chosen.scheme.block, block) << columns;
    EXPECT_EQ(chosen.tensors[0].data_type, onnx_data_type(DType::kUInt4));
    EXPECT_THAT(chosen.tensors[0].dims, ElementsAre(64, columns));
    EXPECT_THAT(chosen.tensors[2].dims, ElementsAre(64, columns / static_cast<int>(block)));
  }
}

TEST(MatrixChoice, PatternsAndOptionsKeepFloats) {
  MatrixGraph graph;
  QuantizeOptions options;
  options.keep_float = {"layer.*"};
  options.head = HeadWeights::kFloat;
  options.min_rows = 8;
  const auto plan = plan_of(model_of_all(graph), options);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(schemes(*plan), ElementsAre("small.weight: int4/64, zero points, 5 steps"));
  EXPECT_THAT(reasons(*plan),
              ElementsAre("embed.weight: it is a head or an embedding, which are not quantized",
                          "layer.weight.transposed: the pattern 'layer.*' keeps it",
                          "gate.weight: it chooses experts",
                          "head.weight: it is a head or an embedding, which are not quantized"));
}

WeightScheme own(const char* text) {
  return parse_weight_scheme(text).value();
}

TEST(MatrixChoice, TheLastPatternThatMatchesAWeightGivesItsScheme) {
  MatrixGraph graph;
  QuantizeOptions options;
  options.head = HeadWeights::kFloat;
  options.weights = {own("layer.*=int4/32"), own("*er.weight*=int8/256"), own("head*=int4")};
  const auto plan = plan_of(model_of_all(graph), options);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(schemes(*plan), ElementsAre("layer.weight.transposed: int8/256, symmetric, nearest",
                                          "head.weight: int4/64, zero points, 5 steps"))
      << "a pattern decides before the option for heads";
  EXPECT_THAT(check_patterns(options, std::array{&*plan}),
              FailsWith(ErrorCode::kNotFound, "'layer.*'; a pattern must match the whole name"));
  options.weights.erase(options.weights.begin());
  const auto again = plan_of(graph, options);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(check_patterns(options, std::array{&*again}), IsOk());
}

TEST(MatrixChoice, PatternsForSchemesDoNotQuantizeWhatStaysForOtherReasons) {
  MatrixGraph graph;
  QuantizeOptions options;
  options.keep_float = {"layer.*"};
  options.weights = {own("*=int8"), own("gate.*=int8"), own("small.weight=int4")};
  const auto plan = plan_of(model_of_all(graph), options);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(schemes(*plan), ElementsAre("embed.weight: int8/64, symmetric, nearest",
                                          "head.weight: int8/128, symmetric, nearest"))
      << "no block of 128 divides the rows of the embedding";
  EXPECT_THAT(reasons(*plan),
              ElementsAre("layer.weight.transposed: the pattern 'layer.*' keeps it",
                          "gate.weight: it chooses experts", "small.weight: it is small"));
  EXPECT_THAT(check_patterns(options, std::array{&*plan}),
              FailsWith(ErrorCode::kNotFound, "'gate.*', 'small.weight'; "));
}

TEST(MatrixChoice, APatternIsOfUseIfOneOfSeveralModelsHasItsWeight) {
  MatrixGraph first;
  MatrixGraph second;
  second.weight("other", {128, 128}).builder().input("x", kFloat, {2, 128});
  second.node("MatMul", {"x", "other"}, {"y"}).node("ReduceMax", {"y"}, {"z"});
  QuantizeOptions options;
  options.weights = {own("other=int8")};
  const auto one = plan_of(model_of_all(first), options);
  const auto two = plan_of(second, options);
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(check_patterns(options, std::array{&*one, &*two}), IsOk());
  EXPECT_THAT(check_patterns(options, std::array{&*one}), FailsWith(ErrorCode::kNotFound, "other"));
}

TEST(MatrixChoice, RowsThatAreTooLongStay) {
  for (const std::int64_t columns : {kMaxQuantizedColumns, kMaxQuantizedColumns + 64}) {
    MatrixGraph graph;
    graph.weight("wide", {columns, 128}).weight("layer", {128, 128});
    graph.builder().input("x", kFloat, {2, columns});
    graph.node("MatMul", {"x", "wide"}, {"y"}).node("MatMul", {"y", "layer"}, {"z"});
    const auto plan = plan_of(graph);
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(schemes(*plan).size(), columns == kMaxQuantizedColumns ? 2U : 1U);
  }
}

TEST(MatrixChoice, ConstantsOfRemovedNodesAreUnread) {
  MatrixGraph graph;
  graph.integers("only", {128, 64}).integers("both", {0}).weight("w", {8192});
  graph.weight("v", {1, 128, 64});
  graph.node("Reshape", {"w", "only"}, {"r"}).node("Squeeze", {"v", "both"}, {"s"});
  graph.builder().input("x", kFloat, {2, 128});
  graph.node("MatMul", {"x", "s"}, {"y"}).node("Squeeze", {"y", "both"}, {"z"});
  const auto plan = plan_of(graph);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->weights[0].reason, FloatReason::kVector);
  EXPECT_THAT(plan->unread_inline, IsEmpty()) << "another node reads the axes";
}

}  // namespace
}  // namespace onnx_external
