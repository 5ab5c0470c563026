#include "onnx/matrix_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/edited_model.h"
#include "support/matrix_graph.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// The model that a save would write: with the tensors of the plan, and the weights gone.
Result<Model> replaced(MatrixGraph& graph, QuantizeOptions options = {},
                       const KeepMatrix& keep = {}) {
  const Model model = graph.model();
  TRY_ASSIGN(auto weights, find_matrices(model, {}));
  TRY_ASSIGN(const MatrixPlan plan, choose_matrices(model, std::move(weights), options, keep));
  std::vector<Attachment> attachments;
  for (const ChosenMatrix& chosen : plan.matrices) {
    for (const MatrixTensor& tensor : chosen.tensors) {
      TRY_ASSIGN(const auto bytes, onnx_nbytes(tensor.data_type, tensor.dims));
      attachments.push_back({kNoSlot, tensor.name, tensor.data_type, tensor.dims,
                             ExternalRef{"data/" + tensor.name, 0, bytes, ""}});
    }
  }
  ModelEdits edits;
  TRY(attach(model, attachments, MatchedInputs::kRemove, edits));
  TRY(replace_matrices(model, plan, edits));
  return edited_model(model, std::move(edits));
}

std::map<std::string, std::int64_t> attributes(const onnx::NodeProto& node) {
  std::map<std::string, std::int64_t> found;
  for (const auto& attribute : node.attribute()) {
    found.emplace(attribute.name(), attribute.i());
  }
  return found;
}

std::vector<std::string> names(const auto& messages) {
  std::vector<std::string> found;
  for (const auto& message : messages) {
    found.push_back(message.name());
  }
  return found;
}

TEST(MatrixNodes, AProductKeepsItsPlaceNameAndOutput) {
  MatrixGraph graph;
  graph.weight("w", {128, 64}).weight("b", {64}).builder().input("x", kFloat, {2, 128});
  graph.builder().value_info("w", kFloat, {128, 64}).value_info("y", kFloat, {2, 64});
  graph.node("Gemm", {"x", "w", "b"}, {"y"}).node("ReduceMax", {"y"}, {"z"});
  graph.graph().mutable_node(0)->set_doc_string("kept");
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  ASSERT_EQ(made.node_size(), 2);
  const onnx::NodeProto& node = made.node(0);
  EXPECT_EQ(node.op_type(), "MatMulNBits");
  EXPECT_EQ(node.domain(), "com.microsoft");
  EXPECT_EQ(node.name(), "Gemm_0");
  EXPECT_EQ(node.doc_string(), "kept");
  EXPECT_THAT(node.input(), ElementsAre("x", "w.codes", "w.scales", "w.zero_points", "", "b"));
  EXPECT_THAT(node.output(), ElementsAre("y"));
  EXPECT_THAT(attributes(node),
              UnorderedElementsAre(Pair("K", 128), Pair("N", 64), Pair("bits", 4),
                                   Pair("block_size", 64), Pair("accuracy_level", 4)));
  EXPECT_THAT(names(made.initializer()),
              UnorderedElementsAre("b", "w.codes", "w.scales", "w.zero_points"));
  EXPECT_THAT(names(made.value_info()), ElementsAre("y"));
  ASSERT_EQ(model->proto().opset_import_size(), 2);
  EXPECT_EQ(model->proto().opset_import(1).domain(), "com.microsoft");
}

TEST(MatrixNodes, LevelZeroAndZeroPointsAreLeftOut) {
  MatrixGraph graph;
  graph.weight("w", {128, 64}).builder().input("x", kFloat, {2, 128});
  graph.node("MatMul", {"x", "w"}, {"y"});
  auto* import = graph.builder().model().add_opset_import();
  import->set_domain("com.microsoft");
  import->set_version(1);
  QuantizeOptions options;
  options.scheme = default_scheme(8);
  options.accuracy_level = 0;
  const auto model = replaced(graph, options);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(model->proto().graph().node(0).input(), ElementsAre("x", "w.codes", "w.scales"));
  EXPECT_THAT(attributes(model->proto().graph().node(0)), SizeIs(4));
  EXPECT_EQ(model->proto().opset_import_size(), 2) << "it was imported before";
}

TEST(MatrixNodes, ViewsAndTheirConstantsGo) {
  MatrixGraph graph;
  graph.weight("w", {64, 1, 128}).integers("axes", {1}).builder().input("x", kFloat, {2, 128});
  graph.node("Squeeze", {"w", "axes"}, {"s"}).node("Transpose", {"s"}, {"t"});
  graph.node("MatMul", {"x", "t"}, {"y"});
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(names(model->proto().graph().node()), ElementsAre("MatMul_2"));
  EXPECT_THAT(names(model->proto().graph().initializer()),
              UnorderedElementsAre("w.codes", "w.scales", "w.zero_points"));
}

TEST(MatrixNodes, AnAddendThatIsNotABiasGetsANodeOfItsOwn) {
  MatrixGraph graph;
  graph.weight("w", {128, 64}).builder().input("x", kFloat, {2, 128}).input("c", kFloat, {2, 64});
  graph.node("Gemm", {"x", "w", "c"}, {"y"});
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  ASSERT_EQ(made.node_size(), 2);
  EXPECT_EQ(made.node(0).op_type(), "MatMulNBits");
  EXPECT_EQ(made.node(1).op_type(), "Add");
  EXPECT_EQ(made.node(1).domain(), "");
  EXPECT_THAT(made.node(1).input(), ElementsAre(made.node(0).output(0), "c"));
  EXPECT_THAT(made.node(1).output(), ElementsAre("y"));
}

TEST(MatrixNodes, AnEmbeddingReadsItsTable) {
  MatrixGraph graph;
  graph.weight("w", {1000, 128}).node("Gather", {"w", "ids"}, {"h"});
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  const onnx::NodeProto& node = model->proto().graph().node(0);
  EXPECT_EQ(node.op_type(), "GatherBlockQuantized");
  EXPECT_THAT(node.input(), ElementsAre("w.table", "ids", "w.scales"));
  EXPECT_THAT(attributes(node),
              UnorderedElementsAre(Pair("gather_axis", 0), Pair("quantize_axis", 1),
                                   Pair("bits", 8), Pair("block_size", 64)));
}

std::vector<std::string> operators(const onnx::GraphProto& graph) {
  std::vector<std::string> found;
  for (const auto& node : graph.node()) {
    found.push_back(node.op_type());
  }
  return found;
}

QuantizeOptions standard_form() {
  QuantizeOptions options;
  options.form = QuantizedForm::kDequantizeLinear;
  return options;
}

TEST(MatrixNodes, TheStandardFormDequantizesTheTransposeOfTheRows) {
  MatrixGraph graph;
  graph.builder().model().mutable_opset_import(0)->set_version(21);
  graph.weight("w", {64, 128}).weight("b", {64}).builder().input("x", kFloat, {2, 128});
  graph.node("Gemm", {"x", "w", "b"}, {"y"}).with("transB", std::int64_t{1});
  graph.node("ReduceMax", {"y"}, {"z"});
  const auto model = replaced(graph, standard_form());
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  EXPECT_THAT(operators(made), ElementsAre("Transpose", "Transpose", "Transpose",
                                           "DequantizeLinear", "Gemm", "ReduceMax"));
  const onnx::NodeProto& dequantize = made.node(3);
  EXPECT_THAT(dequantize.input(),
              ElementsAre(made.node(0).output(0), made.node(1).output(0), made.node(2).output(0)));
  EXPECT_THAT(attributes(dequantize),
              UnorderedElementsAre(Pair("axis", 0), Pair("block_size", 64)));
  EXPECT_THAT(made.node(4).input(), ElementsAre("x", dequantize.output(0), "b"));
  EXPECT_THAT(made.node(4).attribute(), IsEmpty()) << "the matrix is [K, N] now";
  EXPECT_EQ(model->proto().opset_import_size(), 1);
}

TEST(MatrixNodes, TheStandardFormGathersCodes) {
  MatrixGraph graph;
  graph.builder().model().mutable_opset_import(0)->set_version(21);
  graph.weight("w", {1000, 128}).node("Gather", {"w", "ids"}, {"h"});
  const auto model = replaced(graph, standard_form());
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(operators(model->proto().graph()),
              ElementsAre("Gather", "Gather", "Shape", "ConstantOfShape", "DequantizeLinear"));
}

TEST(MatrixNodes, TheStandardFormNeedsOpset21) {
  MatrixGraph graph;
  graph.weight("w", {1000, 128}).node("Gather", {"w", "ids"}, {"h"});
  EXPECT_THAT(replaced(graph, standard_form()),
              FailsWith(ErrorCode::kUnsupported, "the model has opset 17"));
}

TEST(MatrixNodes, NodesOfBodiesAreReplacedInTheirGraph) {
  MatrixGraph graph;
  graph.builder().input("x", kFloat, {2, 128}).input("c", onnx::TensorProto::BOOL, {});
  graph.builder().node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  graph.weight("w", {128, 64});
  graph.builder().node("MatMul", {"x", "w"}, {"inner"}).output("inner", kFloat, {2, 64});
  graph.builder().end_subgraph();
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& body = model->proto().graph().node(0).attribute(0).g();
  EXPECT_EQ(body.node(0).op_type(), "MatMulNBits");
  EXPECT_THAT(body.initializer(), IsEmpty());
  EXPECT_THAT(names(model->proto().graph().initializer()), SizeIs(3)) << "bodies see them";
}

TEST(MatrixNodes, BeforeIrVersion4TheNewTensorsAreInputsToo) {
  MatrixGraph graph;
  graph.builder().model().set_ir_version(3);
  graph.weight("w", {128, 64}).builder().input("x", kFloat, {2, 128}).input("w", kFloat, {128, 64});
  graph.node("MatMul", {"x", "w"}, {"y"});
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(names(model->proto().graph().input()),
              ElementsAre("x", "w.codes", "w.scales", "w.zero_points"));
}

TEST(MatrixNodes, AConstantGoesWithItsNode) {
  MatrixGraph graph;
  graph.node("Constant", {}, {"w"});
  onnx::AttributeProto& value = *graph.graph().mutable_node(0)->add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(kFloat);
  value.mutable_t()->add_dims(128);
  value.mutable_t()->add_dims(64);
  value.mutable_t()->set_raw_data(std::string(std::size_t{128} * 64 * 4, '\0'));
  graph.builder().input("x", kFloat, {2, 128});
  graph.node("MatMul", {"x", "w"}, {"y"});
  const auto model = replaced(graph);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(names(model->proto().graph().node()), ElementsAre("MatMul_1"));
}

QuantizeOptions keeping() {
  QuantizeOptions options;
  options.keep = KeepCodes::kElseFloat;
  return options;
}

// Says of every matrix that it is kept so.
KeepMatrix all_kept(Scheme scheme, KeptInputs inputs = {}) {
  scheme.kept = true;
  scheme.steps = 0;
  const auto shared = std::make_shared<const KeptInputs>(std::move(inputs));
  return [=](const GraphWeight&, const Matrix&) -> Result<std::optional<KeptMatrix>> {
    return KeptMatrix{scheme, shared};
  };
}

std::vector<std::int32_t> reversed(std::int32_t columns) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

TEST(KeptNodes, ProductsOfOneInputShareItsOrder) {
  MatrixGraph graph;
  graph.weight("a", {128, 64}).weight("b", {128, 32}).builder().input("x", kFloat, {2, 128});
  graph.node("MatMul", {"x", "b"}, {"p"}).node("MatMul", {"x", "a"}, {"q"});
  const auto model = replaced(graph, keeping(),
                              all_kept({.bits = 2, .block = 32, .zero_points = false},
                                       {std::vector<float>(128, 2), reversed(128)}));
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  EXPECT_THAT(operators(made),
              ElementsAre("Constant", "Mul", "Constant", "Gather", "MatMulNBits", "MatMulNBits"));
  EXPECT_EQ(made.node(2).attribute(0).t().dims(0), 128);
  EXPECT_THAT(made.node(3).input(), ElementsAre(made.node(1).output(0), made.node(2).output(0)));
  EXPECT_THAT(made.node(4).input(), ElementsAre(made.node(3).output(0), "b.codes", "b.scales"));
  EXPECT_THAT(made.node(5).input(), ElementsAre(made.node(3).output(0), "a.codes", "a.scales"));
  EXPECT_THAT(attributes(made.node(4)), Contains(Pair("bits", 2)));
}

TEST(KeptNodes, TermsAreMultipliedByTheSumsOfBlocks) {
  MatrixGraph graph;
  graph.weight("a", {128, 64}).weight("b", {128, 32}).builder().input("x", kFloat, {2, 128});
  graph.weight("bias", {64});
  graph.node("Gemm", {"x", "a", "bias"}, {"p"}).node("MatMul", {"x", "b"}, {"q"});
  const auto model =
      replaced(graph, keeping(), all_kept({.block = 32, .zero_points = false, .terms = true}));
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  EXPECT_THAT(operators(made), ElementsAre("Shape", "Constant", "Concat", "Reshape", "Constant",
                                           "ReduceSum", "Transpose", "MatMul", "MatMulNBits", "Add",
                                           "Transpose", "MatMul", "MatMulNBits", "Add"));
  EXPECT_THAT(made.node(6).input(), ElementsAre("a.terms"));
  EXPECT_THAT(made.node(8).input(), ElementsAre("x", "a.codes", "a.scales", "", "", "bias"));
  EXPECT_THAT(made.node(9).output(), ElementsAre("p"));
  EXPECT_EQ(made.node(11).input(0), made.node(5).output(0)) << "the sums are shared";
}

TEST(KeptNodes, AnEmbeddingAddsTermsToItsRows) {
  MatrixGraph graph;
  graph.weight("w", {1000, 128}).node("Gather", {"w", "ids"}, {"h"});
  const auto model =
      replaced(graph, keeping(), all_kept({.block = 32, .zero_points = false, .terms = true}));
  ASSERT_THAT(model, IsOk());
  const onnx::GraphProto& made = model->proto().graph();
  const onnx::NodeProto& last = made.node(made.node_size() - 1);
  EXPECT_EQ(made.node(0).op_type(), "GatherBlockQuantized");
  EXPECT_EQ(last.op_type(), "Reshape");
  EXPECT_THAT(last.output(), ElementsAre("h"));
}

TEST(KeptNodes, WhatNoNodeTakesStaysInFloatWithAReason) {
  MatrixGraph graph;
  graph.weight("w", {1000, 128}).node("Gather", {"w", "ids"}, {"h"});
  graph.weight("v", {128, 64}).node("MatMul", {"h", "v"}, {"y"});
  graph.weight("u", {128, 64}).node("MatMul", {"h", "u"}, {"z"});
  const Model model = graph.model();
  const auto kept = all_kept({.block = 32}, {{}, reversed(128)});
  const KeepMatrix keep = [&](const GraphWeight& weight,
                              const Matrix& matrix) -> Result<std::optional<KeptMatrix>> {
    if (weight.name == "u") {
      return std::nullopt;
    }
    return weight.name == "w" ? kept(weight, matrix)
                              : fail(ErrorCode::kUnsupported, "its codes are runes");
  };
  const auto plan = choose_matrices(model, *find_matrices(model, {}), keeping(), keep);
  ASSERT_THAT(plan, IsOk());
  std::map<std::string, std::string> reasons;
  for (const GraphWeight& weight : plan->weights) {
    reasons[weight.name] = float_reason_text(weight.reason, weight.detail);
  }
  EXPECT_THAT(reasons["w"], HasSubstr("an embedding cannot"));
  EXPECT_EQ(reasons["v"], "its codes are runes");
  EXPECT_EQ(reasons["u"], "the checkpoint has it in float");
  QuantizeOptions options = keeping();
  options.keep = KeepCodes::kElseScheme;
  options.scheme = default_scheme(8);
  const auto other = choose_matrices(model, *find_matrices(model, {}), options, keep);
  ASSERT_THAT(other, IsOk());
  ASSERT_THAT(other->matrices, SizeIs(2));
  EXPECT_EQ(other->matrices[1].unkept, "its codes are runes");
  EXPECT_FALSE(other->matrices[1].scheme.kept);
}

}  // namespace
}  // namespace onnx_external
