#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_external/cut.h"
#include "unit/cut/cut_support.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

GraphBuilder& weight(GraphBuilder& builder, const std::string& name) {
  return builder.initializer(name, kFloat, {1}, std::string(4, '\1'));
}

void node(GraphBuilder& builder, const std::string& op, const std::vector<std::string>& inputs,
          const std::string& output, const std::string& scopes) {
  builder.node(op, inputs, {output}).value_info(output, kFloat, {1});
  in_modules(builder, scopes);
}

// Two layers, each with a `fc` inside.
void add_layers(GraphBuilder& b) {
  b.input("x", kFloat, {1}).input("mask", kFloat, {1});
  std::string value = "x";
  for (const std::string layer : {"layers.0", "layers.1"}) {
    const std::string outer = "'" + layer + "'";
    weight(b, layer + ".fc.weight");
    node(b, "Mul", {value, layer + ".fc.weight"}, layer + "/m", outer + ", '" + layer + ".fc'");
    node(b, "Add", {layer + "/m", "mask"}, layer + "/s", outer);
    value = layer + "/s";
  }
  b.output(value, kFloat, {1});
}

TEST(CutModule, TakesItsNodesWithTheirInputsAndOutputs) {
  GraphBuilder b;
  add_layers(b);
  const auto piece = cut_module(b.model(), "layers.1");
  EXPECT_THAT(nodes_of(piece), ElementsAre("Mul_2", "Add_3"));
  EXPECT_THAT(piece->report.inputs, ElementsAre("layers.0/s", "mask"));
  EXPECT_THAT(piece->report.outputs, ElementsAre("layers.1/s"));
  EXPECT_THAT(piece->report.fed_back, IsEmpty());
  const onnx::ModelProto model = model_of(piece);
  EXPECT_THAT(names_of(model.graph().initializer()), ElementsAre("layers.1.fc.weight"));
  EXPECT_EQ(model.graph().input(0).type().tensor_type().elem_type(), kFloat);
}

TEST(CutModule, MayBeInsideAnother) {
  GraphBuilder b;
  add_layers(b);
  const auto piece = cut_module(b.model(), "layers.0.fc");
  EXPECT_THAT(nodes_of(piece), ElementsAre("Mul_0"));
  EXPECT_THAT(piece->report.inputs, ElementsAre("x"));
  EXPECT_THAT(piece->report.outputs, ElementsAre("layers.0/m"));
}

Result<Piece> cut_without(const onnx::ModelProto& model, std::string module,
                          std::vector<std::string> without) {
  CutOptions options;
  options.module = std::move(module);
  options.without = std::move(without);
  return cut(model, options);
}

TEST(CutModule, MayBeWithoutModulesInsideOfIt) {
  GraphBuilder b;
  add_layers(b);
  const auto layer = cut_without(b.model(), "layers.1", {"layers.1.fc"});
  EXPECT_THAT(nodes_of(layer), ElementsAre("Add_3"));
  EXPECT_THAT(layer->report.inputs, ElementsAre("layers.1/m", "mask"));
  EXPECT_EQ(layer->report.weight_bytes, 0U);
  const auto whole = cut_without(b.model(), "", {"layers.0.fc", "layers.1"});
  EXPECT_THAT(nodes_of(whole), ElementsAre("Add_1"));
  EXPECT_THAT(whole->report.outputs, ElementsAre("layers.0/s"));
  const auto around = cut_without(b.model(), "layers", {"layers.0.fc", "layers.1.fc"});
  EXPECT_THAT(nodes_of(around), ElementsAre("Add_1", "Add_3"));
  EXPECT_THAT(around->report.outputs, ElementsAre("layers.0/s", "layers.1/s"));
  EXPECT_THAT(around->report.fed_back, ElementsAre("layers.1/m"));
}

TEST(CutModule, CannotBeWithoutModulesOutsideOfIt) {
  GraphBuilder b;
  add_layers(b);
  EXPECT_THAT(cut_without(b.model(), "layers.0", {"layers.1.fc"}),
              FailsWith(ErrorCode::kInvalidArgument, "has no node in 'layers.0'"));
  EXPECT_THAT(cut_without(b.model(), "layers.0", {"layers.0.fd"}),
              FailsWith(ErrorCode::kNotFound, "'layers.0.fc'"));
  EXPECT_THAT(cut_without(b.model(), "layers.0", {"layers.0"}),
              FailsWith(ErrorCode::kInvalidArgument, "nothing outside"));
  CutOptions both;
  both.without = {"layers.0"};
  both.outputs = {"layers.0/s"};
  EXPECT_THAT(cut(b.model(), both),
              FailsWith(ErrorCode::kInvalidArgument, "give only one of them"));
}

TEST(CutModule, MayBeAContainerThatIsNeverCalled) {
  GraphBuilder b;
  add_layers(b);
  EXPECT_THAT(nodes_of(cut_module(b.model(), "layers")),
              ElementsAre("Mul_0", "Add_1", "Mul_2", "Add_3"));
}

TEST(CutModule, IsFoundByTheNamespace) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Neg", {"x"}, {"a"}).node("Abs", {"a"}, {"y"});
  b.output("y", kFloat, {1}).value_info("a", kFloat, {1});
  add_metadata(*b.model().mutable_graph()->mutable_node(1), "namespace",
               ": Model/act: torch.nn.Act/act.inner: Abs/abs: aten.abs.default");
  EXPECT_THAT(nodes_of(cut_module(b.model(), "act")), ElementsAre("Abs_1"));
  EXPECT_THAT(nodes_of(cut_module(b.model(), "act.inner")), ElementsAre("Abs_1"));
  EXPECT_THAT(cut_module(b.model(), "abs"), FailsWith(ErrorCode::kNotFound, "'act'"));
}

TEST(CutModule, IsFoundByTheNamesThatTheOlderExporterGives) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Neg", {"x"}, {"a"}).node("Abs", {"a"}, {"y"});
  b.output("y", kFloat, {1}).value_info("a", kFloat, {1});
  b.model().mutable_graph()->mutable_node(0)->set_name("/seq/seq.0/Neg");
  b.model().mutable_graph()->mutable_node(1)->set_name("/seq/seq.1/inner/Abs");
  for (const char* module : {"seq.1", "seq.1.inner"}) {
    EXPECT_THAT(nodes_of(cut_module(b.model(), module)), ElementsAre("/seq/seq.1/inner/Abs"));
  }
  EXPECT_EQ(nodes_of(cut_module(b.model(), "seq")).size(), 2);
}

TEST(CutModule, ThatIsCalledTwiceIsOnePiece) {
  GraphBuilder b;
  b.input("x", kFloat, {1});
  node(b, "Neg", {"x"}, "a", "'shared'");
  node(b, "Abs", {"a"}, "b", "'other'");
  node(b, "Neg", {"b"}, "y", "'shared'");
  b.output("y", kFloat, {1});
  const auto piece = cut_module(b.model(), "shared");
  EXPECT_THAT(nodes_of(piece), ElementsAre("Neg_0", "Neg_2"));
  EXPECT_THAT(piece->report.inputs, ElementsAre("x", "b"));
  EXPECT_THAT(piece->report.outputs, ElementsAre("a", "y"));
  EXPECT_THAT(piece->report.fed_back, ElementsAre("b"));
}

TEST(CutModule, TakesNodesOfNoModuleBetweenItsNodes) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Identity", {"x"}, {"before"}).value_info("before", kFloat, {1});
  node(b, "Neg", {"before"}, "a", "'m'");
  b.node("Cast", {"a"}, {"a16"}).node("Cast", {"a16"}, {"a32"});
  node(b, "Abs", {"a32"}, "b", "'m'");
  b.node("Identity", {"b"}, {"y"}).output("y", kFloat, {1});
  EXPECT_THAT(nodes_of(cut_module(b.model(), "m")),
              ElementsAre("Neg_1", "Cast_2", "Cast_3", "Abs_4"));
}

TEST(CutModule, TakesWhatFollowsFromInitializersAlone) {
  GraphBuilder b;
  b.input("x", kFloat, {1});
  weight(b, "w").node("Transpose", {"w"}, {"t"}).node("RandomNormal", {}, {"random"});
  b.node("Constant", {}, {"c"}).value_info("random", kFloat, {1});
  node(b, "Sum", {"x", "t", "c", "random"}, "y", "'m'");
  b.output("y", kFloat, {1}).output("t", kFloat, {1});
  const auto piece = cut_module(b.model(), "m");
  EXPECT_THAT(nodes_of(piece), ElementsAre("Transpose_0", "Constant_2", "Sum_3"));
  EXPECT_THAT(piece->report.inputs, ElementsAre("x", "random"));
  EXPECT_THAT(piece->report.outputs, ElementsAre("y"));
}

TEST(CutModule, HasOutputsThatOnlySubgraphsRead) {
  GraphBuilder b;
  b.input("flag", onnx::TensorProto::BOOL, {1}).input("x", kFloat, {1});
  node(b, "Neg", {"x"}, "a", "'m'");
  b.node("If", {"flag"}, {"y"}).begin_subgraph("then_branch");
  b.node("Abs", {"a"}, {"t"}).output("t", kFloat, {1}).end_subgraph().output("y", kFloat, {1});
  const auto piece = cut_module(b.model(), "m");
  ASSERT_THAT(piece, IsOk());
  EXPECT_THAT(piece->report.outputs, ElementsAre("a"));
}

TEST(CutModule, IsRefusedIfItLiesInASubgraph) {
  GraphBuilder b;
  b.input("flag", onnx::TensorProto::BOOL, {1}).input("x", kFloat, {1});
  b.node("If", {"flag"}, {"y"}).begin_subgraph("then_branch");
  b.node("Abs", {"x"}, {"t"}).output("t", kFloat, {1}).end_subgraph().output("y", kFloat, {1});
  auto* inner = b.model().mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_g();
  inner->mutable_node(0)->set_name("/cond/act/Abs");
  b.model().mutable_graph()->mutable_node(0)->set_name("/cond/If");
  EXPECT_THAT(cut_module(b.model(), "cond.act"),
              FailsWith(ErrorCode::kUnsupported, "inside a subgraph of 'If' '/cond/If'"));
  EXPECT_THAT(nodes_of(cut_module(b.model(), "cond")), ElementsAre("/cond/If"));
}

TEST(CutModule, IsRefusedIfThereIsNoneOfTheName) {
  GraphBuilder b;
  add_layers(b);
  EXPECT_THAT(cut_module(b.model(), "layers.2"), FailsWith(ErrorCode::kNotFound, "'layers.0'"));
  GraphBuilder bare;
  bare.input("x", kFloat, {1}).node("Neg", {"x"}, {"y"}).output("y", kFloat, {1});
  EXPECT_THAT(cut_module(bare.model(), "layer"),
              FailsWith(ErrorCode::kNotFound, "does not record which modules"));
}

TEST(CutModule, IsRefusedIfNothingUsesItsResults) {
  GraphBuilder b;
  b.input("x", kFloat, {1});
  node(b, "Neg", {"x"}, "a", "'dead'");
  b.node("Abs", {"x"}, {"y"}).output("y", kFloat, {1});
  EXPECT_THAT(cut_module(b.model(), "dead"),
              FailsWith(ErrorCode::kInvalidArgument, "nothing outside"));
}

}  // namespace
}  // namespace onnx_external
