#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/tensor_list.h"
#include "onnx_external/cut.h"
#include "unit/cut/cut_support.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// x -> MatMul(w) = a -> Relu = b -> Add(bias) = c -> Tanh = y
onnx::ModelProto chain() {
  GraphBuilder b;
  b.input("x", kFloat, {kAnySize, 4})
      .external("w", kFloat, {4, 4},
                {{"location", "model.data"}, {"offset", "4096"}, {"length", "64"}})
      .initializer("bias", kFloat, {4}, std::string(16, '\x2'))
      .initializer("unused", kFloat, {1}, std::string(4, '\x3'))
      .node("MatMul", {"x", "w"}, {"a"})
      .node("Relu", {"a"}, {"b"})
      .node("Add", {"b", "bias"}, {"c"})
      .node("Tanh", {"c"}, {"y"})
      .value_info("a", kFloat, {kAnySize, 4})
      .value_info("b", kFloat, {kAnySize, 4})
      .value_info("c", kFloat, {kAnySize, 4})
      .value_info("w", kFloat, {4, 4})
      .output("y", kFloat, {kAnySize, 4});
  return b.model();
}

TEST(CutValues, TakeTheNodesBetweenThem) {
  const auto piece = cut_between(chain(), {"a"}, {"c"});
  EXPECT_THAT(nodes_of(piece), ElementsAre("Relu_1", "Add_2"));
  const onnx::ModelProto model = model_of(piece);
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("a"));
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("c"));
  EXPECT_THAT(names_of(model.graph().initializer()), ElementsAre("bias"));
  EXPECT_THAT(names_of(model.graph().value_info()), ElementsAre("b"));
  EXPECT_EQ(model.graph().initializer(0).raw_data(), std::string(16, '\x2'));
  EXPECT_EQ(model.opset_import(0).version(), 17);
  EXPECT_EQ(piece->report.nodes, 2);
  EXPECT_EQ(piece->report.initializers, 1);
  EXPECT_EQ(piece->report.weight_bytes, 16);
  EXPECT_EQ(piece->report.model_bytes, piece->model.size());
  EXPECT_THAT(piece->report.data_files, IsEmpty());
}

TEST(CutValues, KeepTypesAndSymbolicDimensions) {
  const onnx::ModelProto model = model_of(cut_between(chain(), {"a"}, {"c"}));
  for (const auto& info : {model.graph().input(0), model.graph().output(0)}) {
    EXPECT_EQ(info.type().tensor_type().elem_type(), kFloat);
    EXPECT_EQ(info.type().tensor_type().shape().dim(0).dim_param(), "N");
    EXPECT_EQ(info.type().tensor_type().shape().dim(1).dim_value(), 4);
  }
}

TEST(CutValues, LeaveExternalDataWhereItIs) {
  const auto piece = cut_between(chain(), {"x"}, {"a"});
  const onnx::ModelProto model = model_of(piece);
  ASSERT_THAT(names_of(model.graph().initializer()), ElementsAre("w"));
  const onnx::TensorProto& w = model.graph().initializer(0);
  EXPECT_TRUE(is_external(w));
  ASSERT_EQ(w.external_data_size(), 3);
  EXPECT_EQ(w.external_data(0).value(), "model.data");
  EXPECT_EQ(w.external_data(1).value(), "4096");
  EXPECT_EQ(w.external_data(2).value(), "64");
  EXPECT_THAT(names_of(model.graph().value_info()), ElementsAre("w"));
  EXPECT_THAT(piece->report.data_files, ElementsAre("model.data"));
  EXPECT_EQ(piece->report.weight_bytes, 64);
}

TEST(CutValues, ComeInTheOrderInWhichTheyAreNamed) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).input("z", kFloat, {1});
  b.node("Add", {"x", "z"}, {"s"}).node("Neg", {"s"}, {"n"});
  b.output("s", kFloat, {1}).output("n", kFloat, {1});
  const onnx::ModelProto model = model_of(cut_between(b.model(), {"z", "x"}, {"n", "s"}));
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("z", "x"));
  EXPECT_THAT(names_of(model.graph().output()), ElementsAre("n", "s"));
}

TEST(CutValues, MayBeInitializersWhoseValueTheCallerGivesThen) {
  const onnx::ModelProto model = model_of(cut_between(chain(), {"w", "x"}, {"a"}));
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("w", "x"));
  EXPECT_THAT(names_of(model.graph().initializer()), IsEmpty());
}

TEST(CutValues, NeedNoInputsIfEverythingIsConstant) {
  GraphBuilder b;
  b.initializer("w", kFloat, {1}, std::string(4, '\0')).node("Neg", {"w"}, {"n"});
  b.output("n", kFloat, {1});
  EXPECT_THAT(nodes_of(cut_between(b.model(), {}, {"n"})), ElementsAre("Neg_0"));
}

TEST(CutValues, BeginAtTheInputsOfTheGraphIfNoneAreNamed) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).input("other", kFloat, {1}).input("y", kFloat, {1});
  b.node("Neg", {"y"}, {"n"}).node("Add", {"n", "x"}, {"c"}).node("Add", {"c", "other"}, {"d"});
  b.value_info("c", kFloat, {1}).output("d", kFloat, {1});
  const auto piece = cut_between(b.model(), {}, {"c"});
  EXPECT_THAT(nodes_of(piece), ElementsAre("Neg_0", "Add_1"));
  EXPECT_THAT(piece->report.inputs, ElementsAre("x", "y"));
}

TEST(CutValues, AreRefusedIfAGraphInputIsReachedAnotherWay) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Neg", {"x"}, {"n"}).node("Add", {"n", "x"}, {"c"});
  b.value_info("n", kFloat, {1}).output("c", kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"n"}, {"c"}),
              FailsWith(ErrorCode::kMismatch, "'c' also depends on the graph input 'x'"));
  // The output is above the input.
  EXPECT_THAT(cut_between(chain(), {"c"}, {"b"}), FailsWith(ErrorCode::kMismatch, "'x'"));
}

TEST(CutValues, AreRefusedIfTheyAreNoInputsOrOutputs) {
  EXPECT_THAT(cut_between(chain(), {"a"}, {}), FailsWith(ErrorCode::kInvalidArgument, "no output"));
  EXPECT_THAT(cut_between(chain(), {"a"}, {"bias"}),
              FailsWith(ErrorCode::kInvalidArgument, "'bias' is not computed by a node"));
  EXPECT_THAT(cut_between(chain(), {"a"}, {"a"}),
              FailsWith(ErrorCode::kInvalidArgument, "both input and output"));
  EXPECT_THAT(cut_between(chain(), {"a", "a"}, {"c"}),
              FailsWith(ErrorCode::kInvalidArgument, "'a' is listed twice"));
  EXPECT_THAT(cut_between(chain(), {"a", "unused"}, {"c"}),
              FailsWith(ErrorCode::kInvalidArgument, "no output depends on the input 'unused'"));
  EXPECT_THAT(cut_between(chain(), {"a"}, {"bais"}), FailsWith(ErrorCode::kNotFound, "'bias'"));
  EXPECT_THAT(cut_between(chain(), {""}, {"c"}), FailsWith(ErrorCode::kNotFound, "''"));
  EXPECT_THAT(cut(chain(), {}), FailsWith(ErrorCode::kInvalidArgument, "neither"));
  EXPECT_THAT(cut(chain(), {"m", {}, {"c"}, {}}),
              FailsWith(ErrorCode::kInvalidArgument, "give only one of them"));
}

TEST(CutValues, AreRefusedIfANodeWouldMakeAnInputAgain) {
  GraphBuilder b;
  b.input("x", kFloat, {2}).node("Split", {"x"}, {"left", "right"});
  b.node("Add", {"left", "right"}, {"y"}).output("y", kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"x", "left"}, {"y"}),
              FailsWith(ErrorCode::kInvalidArgument, "'left' is computed by 'Split' 'Split_0'"));
}

TEST(CutValues, GetTheElementTypeThatOperatorsImplyIfNoneIsStated) {
  onnx::ModelProto model = chain();
  model.mutable_graph()->clear_value_info();
  const onnx::ModelProto piece = model_of(cut_between(model, {"b"}, {"c"}));
  EXPECT_EQ(piece.graph().input(0).type().tensor_type().elem_type(), kFloat);
  EXPECT_FALSE(piece.graph().input(0).type().tensor_type().has_shape());
}

TEST(CutValues, AreRefusedAsInputsOfUnknownType) {
  GraphBuilder b;
  b.input("x", kFloat, {2}).node("Strange", {"x"}, {"a"}).node("Strange", {"a"}, {"y"});
  b.output("y", kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"a"}, {"y"}), FailsWith(ErrorCode::kUnsupported, "'a'"));
  const auto piece = cut_between(b.model(), {"x"}, {"a"});
  ASSERT_THAT(piece, IsOk());
  EXPECT_THAT(piece->report.untyped, ElementsAre("a"));
}

TEST(CutValues, KeepGraphInputsWithDefaultValues) {
  GraphBuilder b;
  b.input("w", kFloat, {1}).input("x", kFloat, {1});
  b.initializer("w", kFloat, {1}, std::string(4, '\0'));
  b.node("Mul", {"x", "w"}, {"y"}).output("y", kFloat, {1});
  const onnx::ModelProto model = model_of(cut_between(b.model(), {"x"}, {"y"}));
  EXPECT_THAT(names_of(model.graph().input()), ElementsAre("x", "w"));
  EXPECT_THAT(names_of(model.graph().initializer()), ElementsAre("w"));
}

TEST(CutValues, BringSubgraphsWithWhatTheyReadFromOutside) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).input("flag", onnx::TensorProto::BOOL, {1});
  b.initializer("w", kFloat, {1}, std::string(4, '\1'));
  b.node("Neg", {"x"}, {"a"}).node("Abs", {"x"}, {"other"}).node("If", {"flag"}, {"y"});
  b.begin_subgraph("then_branch").node("Mul", {"a", "w"}, {"t"}).output("t", kFloat, {1});
  b.end_subgraph().begin_subgraph("else_branch");
  b.node("Identity", {"a"}, {"e"}).output("e", kFloat, {1}).end_subgraph();
  b.value_info("a", kFloat, {1}).output("y", kFloat, {1}).output("other", kFloat, {1});
  const auto piece = cut_between(b.model(), {"a", "flag"}, {"y"});
  const onnx::ModelProto model = model_of(piece);
  EXPECT_THAT(names_of(model.graph().node()), ElementsAre("If_2"));
  EXPECT_THAT(names_of(model.graph().initializer()), ElementsAre("w"));
  EXPECT_EQ(model.graph().node(0).attribute(0).g().node(0).op_type(), "Mul");
  EXPECT_THAT(cut_between(b.model(), {"flag"}, {"y"}), FailsWith(ErrorCode::kMismatch, "'x'"));
  EXPECT_THAT(cut_between(b.model(), {"t"}, {"y"}),
              FailsWith(ErrorCode::kUnsupported, "'t' is inside a subgraph of 'If' 'If_2'"));
}

TEST(CutValues, BringTheFunctionsThatAreCalled) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Outer", {"x"}, {"a"}).node("Other", {"a"}, {"y"});
  b.output("y", kFloat, {1}).value_info("a", kFloat, {1});
  onnx::ModelProto& model = b.model();
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    node.set_domain("own");
  }
  const std::vector<std::pair<std::string, std::string>> calls{
      {"Other", "Neg"}, {"Inner", "Inner"}, {"Outer", "Inner"}};
  for (const auto& [name, called] : calls) {
    onnx::FunctionProto& function = *model.add_functions();
    function.set_name(name);
    function.set_domain("own");
    onnx::NodeProto& node = *function.add_node();
    node.set_op_type(called);
    node.set_domain("own");
  }
  const auto piece = cut_between(model, {"x"}, {"a"});
  EXPECT_THAT(names_of(model_of(piece).functions()), ElementsAre("Inner", "Outer"));
  EXPECT_EQ(piece->report.functions, 2);
}

TEST(CutValues, BringSparseInitializersAndQuantization) {
  onnx::ModelProto model = chain();
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.mutable_node(2)->set_input(1, "sparse");
  onnx::SparseTensorProto& sparse = *graph.add_sparse_initializer();
  sparse.mutable_values()->set_name("sparse");
  sparse.mutable_values()->set_data_type(kFloat);
  sparse.mutable_values()->add_dims(1);
  sparse.mutable_values()->add_float_data(1);
  for (const char* name : {"b", "y"}) {
    onnx::TensorAnnotation& annotation = *graph.add_quantization_annotation();
    annotation.set_tensor_name(name);
    auto& scale = *annotation.add_quant_parameter_tensor_names();
    scale.set_key("SCALE_TENSOR");
    scale.set_value(name[0] == 'b' ? "unused" : "bias");
  }
  const onnx::ModelProto piece = model_of(cut_between(model, {"a"}, {"c"}));
  EXPECT_EQ(piece.graph().sparse_initializer_size(), 1);
  EXPECT_THAT(names_of(piece.graph().initializer()), ElementsAre("unused"));
  ASSERT_EQ(piece.graph().quantization_annotation_size(), 1);
  EXPECT_EQ(piece.graph().quantization_annotation(0).tensor_name(), "b");
}

TEST(CutValues, GiveTheSameBytesEachTime) {
  const auto first = cut_between(chain(), {"x"}, {"y"});
  const auto second = cut_between(chain(), {"x"}, {"y"});
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->model, second->model);
}

TEST(CutValues, GiveAPieceThatCanBeCutAgain) {
  const auto first = cut_between(chain(), {"a"}, {"y"});
  EXPECT_THAT(nodes_of(cut_between(model_of(first), {"b"}, {"c"})), ElementsAre("Add_2"));
}

}  // namespace
}  // namespace onnx_external
