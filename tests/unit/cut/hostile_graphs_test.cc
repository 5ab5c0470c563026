#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_external/cut.h"
#include "unit/cut/cut_support.h"

namespace onnx_external {
namespace {

TEST(HostileGraph, WithACycleIsRefused) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Add", {"x", "b"}, {"a"}).node("Neg", {"a"}, {"b"});
  b.output("b", kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"x"}, {"b"}), FailsWith(ErrorCode::kCorrupt, "cycle"));
  GraphBuilder self;
  self.node("Neg", {"a"}, {"a"}).output("a", kFloat, {1});
  EXPECT_THAT(cut_between(self.model(), {}, {"a"}),
              FailsWith(ErrorCode::kCorrupt, "which is its own output"));
}

TEST(HostileGraph, WithACycleThroughASubgraphIsRefused) {
  GraphBuilder b;
  b.input("flag", onnx::TensorProto::BOOL, {1}).node("If", {"flag"}, {"y"});
  b.begin_subgraph("then_branch").node("Abs", {"z"}, {"t"}).output("t", kFloat, {1});
  b.end_subgraph().node("Neg", {"y"}, {"z"}).output("z", kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"flag"}, {"z"}), FailsWith(ErrorCode::kCorrupt, "'z'"));
}

TEST(HostileGraph, WithTwoDefinitionsOfANameIsRefused) {
  GraphBuilder nodes;
  nodes.input("x", kFloat, {1}).node("Neg", {"x"}, {"a"}).node("Abs", {"x"}, {"a"});
  EXPECT_THAT(cut_between(nodes.model(), {"x"}, {"a"}),
              FailsWith(ErrorCode::kCorrupt, "by 'Neg' 'Neg_0' and by 'Abs' 'Abs_1'"));
  GraphBuilder input;
  input.input("x", kFloat, {1}).node("Neg", {"x"}, {"x"});
  EXPECT_THAT(cut_between(input.model(), {}, {"x"}),
              FailsWith(ErrorCode::kCorrupt, "by a graph input"));
  GraphBuilder inputs;
  inputs.input("x", kFloat, {1}).input("x", kFloat, {1}).node("Neg", {"x"}, {"y"});
  EXPECT_THAT(cut_between(inputs.model(), {"x"}, {"y"}),
              FailsWith(ErrorCode::kCorrupt, "two graph inputs"));
  GraphBuilder tensors;
  tensors.initializer("w", kFloat, {1}, "abcd").initializer("w", kFloat, {1}, "abcd");
  tensors.node("Neg", {"w"}, {"y"});
  EXPECT_THAT(cut_between(tensors.model(), {}, {"y"}),
              FailsWith(ErrorCode::kCorrupt, "'w': the name occurs twice"));
}

TEST(HostileGraph, WithAValueThatNothingMakesIsRefused) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Add", {"x", "w"}, {"y"}).output("y", kFloat, {1});
  in_modules(b, "'m'");
  EXPECT_THAT(cut_between(b.model(), {"x"}, {"y"}),
              FailsWith(ErrorCode::kCorrupt, "reads 'w', which nothing defines"));
  EXPECT_THAT(cut_module(b.model(), "m"), FailsWith(ErrorCode::kCorrupt, "'w'"));
  EXPECT_THAT(cut_between(b.model(), {"x"}, {"w"}),
              FailsWith(ErrorCode::kInvalidArgument, "not computed by a node"));
}

TEST(HostileGraph, OfManyNodesIsCutInLinearTime) {
  constexpr int kNodes = 200'000;
  GraphBuilder b;
  b.input("0", kFloat, {1});
  for (int i = 0; i < kNodes; ++i) {
    b.node("Neg", {std::to_string(i)}, {std::to_string(i + 1)});
  }
  b.output(std::to_string(kNodes), kFloat, {1});
  const auto piece = cut_between(b.model(), {"0"}, {std::to_string(kNodes)});
  ASSERT_THAT(piece, IsOk());
  EXPECT_EQ(piece->report.nodes, kNodes);
}

TEST(HostileGraph, WithLongPathsOfModulesNeedsLittleMemory) {
  std::string name;
  for (int i = 0; i < 100'000; ++i) {
    name += "/m";
  }
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Neg", {"x"}, {"y"}).output("y", kFloat, {1});
  b.model().mutable_graph()->mutable_node(0)->set_name(name);
  EXPECT_THAT(nodes_of(cut_module(b.model(), "m.m.m")), ::testing::SizeIs(1));
  EXPECT_THAT(cut_module(b.model(), "n"), FailsWith(ErrorCode::kNotFound, "'n'"));
}

TEST(HostileGraph, WithManyPathsBetweenTwoValuesIsCutInLinearTime) {
  constexpr int kSteps = 1000;  // 2^1000 paths
  GraphBuilder b;
  b.input("0", kFloat, {1});
  for (int i = 0; i < kSteps; ++i) {
    b.node("Add", {std::to_string(i), std::to_string(i)}, {std::to_string(i + 1)});
  }
  b.output(std::to_string(kSteps), kFloat, {1});
  EXPECT_THAT(cut_between(b.model(), {"0"}, {std::to_string(kSteps)}), IsOk());
}

TEST(HostileGraph, WhoseFunctionsCallEachOtherIsCut) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("A", {"x"}, {"y"}).output("y", kFloat, {1});
  for (const auto& [name, called] : {std::pair("A", "B"), std::pair("B", "A")}) {
    onnx::FunctionProto& function = *b.model().add_functions();
    function.set_name(name);
    function.add_node()->set_op_type(called);
  }
  const auto piece = cut_between(b.model(), {"x"}, {"y"});
  ASSERT_THAT(piece, IsOk());
  EXPECT_EQ(piece->report.functions, 2);
}

}  // namespace
}  // namespace onnx_external
