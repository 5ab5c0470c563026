#include "onnx/matrix_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/edited_model.h"
#include "support/matrix_graph.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// The model that a save would write: with the tensors of the plan, and the weights gone.
Result<Model> replaced(MatrixGraph& graph, QuantizeOptions options = {}) {
  const Model model = graph.model();
  TRY_ASSIGN(const MatrixPlan plan, plan_matrices(model, {}, options));
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

TEST(MatrixNodes, WhatIsNoBiasIsAddedByANodeOfItsOwn) {
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
              FailsWith(ErrorCode::kUnsupported, "the model is of opset 17"));
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

}  // namespace
}  // namespace onnx_external
