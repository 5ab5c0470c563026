#include "onnx/matrix_uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "onnx/graph_facts.h"
#include "support/matrix_graph.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Weights = std::vector<GraphWeight>;

Weights weights_of(const Model& model, const std::vector<std::optional<StoredSlot>>& stored = {},
                   MatchedInputs inputs = MatchedInputs::kRemove) {
  auto found = find_matrices(model, stored, inputs);
  EXPECT_THAT(found, IsOk());
  return found ? *std::move(found) : Weights();
}

GraphWeight weight_of(MatrixGraph& graph, const std::string& name = "w") {
  const Model model = graph.model();
  for (GraphWeight& weight : weights_of(model)) {
    if (weight.name == name) {
      for (Matrix& matrix : weight.matrices) {
        for (MatrixUse& use : matrix.uses) {
          use.node = nullptr;  // of a model that is gone
        }
      }
      weight.views.clear();
      return weight;
    }
  }
  ADD_FAILURE() << "no weight " << name;
  return {};
}

FloatReason reason_of(MatrixGraph& graph, const std::string& name = "w") {
  return weight_of(graph, name).reason;
}

// A matrix [n, k] with one use.
void expect_matrix(const GraphWeight& weight, const Shape& rows, const Recipe& recipe) {
  ASSERT_EQ(weight.reason, FloatReason::kNone) << float_reason_text(weight.reason, weight.detail);
  ASSERT_THAT(weight.matrices, SizeIs(1));
  const Matrix& matrix = weight.matrices.front();
  EXPECT_THAT(rows, ElementsAre(matrix.n, matrix.k));
  EXPECT_EQ(recipe_text(matrix.rows), recipe_text(recipe));
}

// w is the second input of a MatMul, whose product no output shows.
MatrixGraph& multiplied(MatrixGraph& graph, const std::string& value) {
  graph.builder().input("x", kFloat, {2, 128});
  return graph.node("MatMul", {"x", value}, {"y"}).node("ReduceMax", {"y"}, {"z"});
}

TEST(MatrixUses, AProductReadsTheRowsOfTheTranspose) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 48}), "w");
  const GraphWeight weight = weight_of(graph);
  expect_matrix(weight, {48, 128}, {RecipeStep::transpose()});
  EXPECT_EQ(weight.matrices[0].uses[0].role, MatrixRole::kLinear);
  EXPECT_EQ(weight.external_tensor, 0U);
  EXPECT_EQ(weight.elements, 128U * 48U);
  EXPECT_EQ(weight.bytes, 4 * 128U * 48U);
}

TEST(MatrixUses, TheTransposesOfASlotAndOfTheGraphCancelOut) {
  MatrixGraph graph;
  multiplied(graph, "w.transposed");
  const Model model = graph.model();
  std::vector<std::optional<StoredSlot>> stored(model.facts().slots.size());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (model.facts().slots[i].name == "w.transposed") {
      stored[i] = StoredSlot{kFloat, {48, 128}, {RecipeStep::transpose()}, "w"};
    }
  }
  const Weights weights = weights_of(model, stored);
  ASSERT_THAT(weights, SizeIs(1));
  expect_matrix(weights[0], {48, 128}, {});
  EXPECT_TRUE(weights[0].is_stored);
  EXPECT_EQ(weights[0].key, "w");
}

TEST(MatrixUses, ACastFromBFloat16IsSeenThrough) {
  MatrixGraph graph;
  graph.weight("w", {48, 128}, onnx::TensorProto::BFLOAT16);
  graph.node("Cast", {"w"}, {"f"}).with("to", std::int64_t{kFloat});
  graph.node("Transpose", {"f"}, {"t"}).with("perm", std::vector<std::int64_t>{1, 0});
  multiplied(graph, "t");
  const GraphWeight weight = weight_of(graph);
  expect_matrix(weight, {48, 128}, {});
  EXPECT_EQ(weight.matrices[0].data_type, kFloat);
}

TEST(MatrixUses, AGemmMayHaveItsRowsOrTheirTranspose) {
  for (const std::int64_t rows : {0, 1}) {
    MatrixGraph graph;
    graph.weight("w", {128, 128}).weight("b", {128});
    graph.builder().input("x", kFloat, {2, 128});
    graph.node("Gemm", {"x", "w", "b"}, {"y"}).with("transB", rows);
    const GraphWeight weight = weight_of(graph);
    expect_matrix(weight, {128, 128}, rows != 0 ? Recipe() : Recipe{RecipeStep::transpose()});
    EXPECT_EQ(weight.matrices[0].uses[0].addend, "b");
    EXPECT_TRUE(weight.matrices[0].uses[0].addend_is_bias);
    EXPECT_EQ(reason_of(graph, "b"), FloatReason::kVector);
  }
}

TEST(MatrixUses, ATiedHeadAndEmbeddingAreOneMatrix) {
  MatrixGraph graph;
  graph.weight("w", {96, 128});
  graph.builder().input("ids", kInt64, {2}).output("y", kFloat, {2, 96});
  graph.node("Gather", {"w", "ids"}, {"h"}).node("Transpose", {"w"}, {"t"});
  graph.node("MatMul", {"h", "t"}, {"y"});
  const GraphWeight weight = weight_of(graph);
  expect_matrix(weight, {96, 128}, {});
  EXPECT_THAT(weight.matrices[0].uses, SizeIs(2));
  EXPECT_TRUE(weight.matrices[0].has(MatrixRole::kHead));
  EXPECT_TRUE(weight.matrices[0].is_gathered());
}

TEST(MatrixUses, ATableHasTheTypeToWhichItsRowsAreConverted) {
  for (const bool is_other : {false, true}) {
    MatrixGraph graph;
    graph.weight("w", {96, 128}, onnx::TensorProto::BFLOAT16);
    graph.builder().input("ids", kInt64, {2});
    graph.node("Gather", {"w", "ids"}, {"h"});
    graph.node("Cast", {"h"}, {"f"}).with("to", std::int64_t{onnx::TensorProto::FLOAT});
    if (is_other) {
      graph.node("Neg", {"h"}, {"n"});
      EXPECT_EQ(reason_of(graph), FloatReason::kType);
    } else {
      const GraphWeight weight = weight_of(graph);
      expect_matrix(weight, {96, 128}, {});
      EXPECT_EQ(weight.matrices[0].data_type, kFloat);
    }
  }
}

TEST(MatrixUses, ExpertsAreSlices) {
  MatrixGraph graph;
  graph.weight("w", {2, 48, 128}).integers("axes", {0});
  graph.node("Transpose", {"w"}, {"t"}).with("perm", std::vector<std::int64_t>{0, 2, 1});
  graph.node("Split", {"t"}, {"a", "b"}).with("num_outputs", std::int64_t{2});
  graph.node("Squeeze", {"a", "axes"}, {"a2"}).node("Squeeze", {"b", "axes"}, {"b2"});
  graph.builder().input("x", kFloat, {2, 128});
  graph.node("MatMul", {"x", "a2"}, {"y"}).node("MatMul", {"x", "b2"}, {"z"});
  const GraphWeight weight = weight_of(graph);
  ASSERT_THAT(weight.matrices, SizeIs(2));
  EXPECT_EQ(recipe_text(weight.matrices[0].rows), "slice [0, 0, 1], reshape [48, 128]");
  EXPECT_EQ(recipe_text(weight.matrices[1].rows), "slice [0, 1, 2], reshape [48, 128]");
}

TEST(MatrixUses, ABodyReadsAWeightOfTheGraphAroundIt) {
  MatrixGraph graph;
  graph.weight("w", {128, 48});
  graph.builder().input("x", kFloat, {2, 128}).input("c", onnx::TensorProto::BOOL, {});
  graph.builder().output("y", kFloat, {2, 48}).node("If", {"c"}, {"y"});
  graph.builder().begin_subgraph("then_branch").node("MatMul", {"x", "w"}, {"inner"});
  graph.builder().output("inner", kFloat, {2, 48}).end_subgraph();
  const GraphWeight weight = weight_of(graph);
  expect_matrix(weight, {48, 128}, {RecipeStep::transpose()});
  EXPECT_EQ(weight.matrices[0].uses[0].graph, 1U);
  EXPECT_EQ(weight.matrices[0].uses[0].role, MatrixRole::kHead) << "the branch gives y";
}

TEST(MatrixUses, ANameOfTheBodyHidesTheWeight) {
  MatrixGraph graph;
  graph.weight("w", {128, 48});
  graph.builder().input("x", kFloat, {2, 128}).input("c", onnx::TensorProto::BOOL, {});
  graph.builder().node("If", {"c"}, {"y"}).begin_subgraph("then_branch");
  graph.builder().node("Relu", {"x"}, {"w"}).node("MatMul", {"x", "w"}, {"inner"});
  graph.builder().output("inner", kFloat, {2, 48}).end_subgraph();
  EXPECT_EQ(reason_of(graph), FloatReason::kUnread);
}

// --- roles --------------------------------------------------------------------------------------

MatrixRole role_of(MatrixGraph& graph) {
  const GraphWeight weight = weight_of(graph);
  return weight.matrices.empty() ? MatrixRole::kEmbedding : weight.matrices[0].uses[0].role;
}

TEST(MatrixUses, AHeadMayPassActivationsAndConstants) {
  MatrixGraph graph;
  graph.weight("w", {128, 48}).weight("cap", {1});
  graph.builder().input("x", kFloat, {2, 128}).output("out", kFloat, {2, 48});
  graph.node("MatMul", {"x", "w"}, {"y"}).node("Div", {"y", "cap"}, {"d"});
  graph.node("Tanh", {"d"}, {"t"}).node("Mul", {"cap", "t"}, {"out"});
  EXPECT_EQ(role_of(graph), MatrixRole::kHead);
}

TEST(MatrixUses, AProductThatIsAddedToAnotherValueIsNotAHead) {
  MatrixGraph graph;
  graph.weight("w", {128, 128});
  graph.builder().input("x", kFloat, {2, 128}).output("out", kFloat, {2, 128});
  graph.node("MatMul", {"x", "w"}, {"y"}).node("Add", {"y", "x"}, {"out"});
  EXPECT_EQ(role_of(graph), MatrixRole::kLinear);
}

TEST(MatrixUses, AValueOfACacheIsNotAHead) {
  MatrixGraph graph;
  graph.weight("w", {128, 128}).integers("shape", {2, 4, 32});
  graph.builder().input("x", kFloat, {2, 128}).output("present", kFloat, {2, 4, 32});
  graph.node("MatMul", {"x", "w"}, {"y"}).node("Reshape", {"y", "shape"}, {"present"});
  EXPECT_EQ(role_of(graph), MatrixRole::kLinear);
}

TEST(MatrixUses, ARouterReachesATopKOverFewColumns) {
  for (const std::int64_t n : {8, 50000}) {
    MatrixGraph graph;
    graph.weight("w", {128, n}).integers("k", {2}).integers("groups", {2, 4, 2});
    graph.builder().input("x", kFloat, {2, 128});
    graph.node("MatMul", {"x", "w"}, {"y"}).node("Softmax", {"y"}, {"p"});
    graph.node("Reshape", {"p", "groups"}, {"g"}).node("TopK", {"g", "k"}, {"v", "i"});
    EXPECT_EQ(role_of(graph), n == 8 ? MatrixRole::kRouter : MatrixRole::kHead);
  }
}

// --- reasons ------------------------------------------------------------------------------------

TEST(MatrixUses, AWeightThatAnotherOperatorReadsKeepsItsFloats) {
  MatrixGraph graph;
  graph.weight("w", {16, 16, 3, 3}).weight("v", {128, 128});
  graph.builder().input("x", kFloat, {2, 128});
  graph.node("Conv", {"x", "w"}, {"y"}).node("MatMul", {"x", "v"}, {"z"});
  graph.node("Einsum", {"z", "v"}, {"e"});
  EXPECT_EQ(float_reason_text(reason_of(graph), weight_of(graph).detail), "Conv reads it");
  EXPECT_EQ(reason_of(graph, "v"), FloatReason::kReader);
}

TEST(MatrixUses, AFunctionThatReadsAWeightIsNamed) {
  MatrixGraph graph;
  graph.weight("w", {128, 128}).node("Linear", {"x", "w"}, {"y"});
  graph.graph().mutable_node(0)->set_domain("pkg.torch");
  const GraphWeight weight = weight_of(graph);
  EXPECT_EQ(float_reason_text(weight.reason, weight.detail), "pkg.torch.Linear reads it");
}

TEST(MatrixUses, OneReaderOfAnotherKindIsEnough) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 128}), "w").node("Relu", {"w"}, {"r"});
  EXPECT_EQ(reason_of(graph), FloatReason::kReader);
}

TEST(MatrixUses, RowsAndColumnsOfOneWeightWouldNeedTwoSetsOfCodes) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 128}), "w").node("Transpose", {"w"}, {"t"});
  graph.node("MatMul", {"x", "t"}, {"u"});
  EXPECT_EQ(reason_of(graph), FloatReason::kSeveral);
}

TEST(MatrixUses, AFirstInputKeepsItsFloats) {
  MatrixGraph graph;
  graph.weight("w", {128, 128}).node("MatMul", {"w", "x"}, {"y"});
  EXPECT_EQ(reason_of(graph), FloatReason::kFirstInput);
}

TEST(MatrixUses, AGemmThatScalesKeepsItsFloats) {
  for (const char* name : {"alpha", "beta"}) {
    MatrixGraph graph;
    graph.weight("w", {128, 128}).node("Gemm", {"x", "w"}, {"y"}).with(name, 0.5F);
    EXPECT_EQ(reason_of(graph), FloatReason::kGemm) << name;
  }
  MatrixGraph graph;
  graph.weight("w", {128, 128}).node("Gemm", {"x", "w"}, {"y"}).with("transA", std::int64_t{1});
  EXPECT_EQ(reason_of(graph), FloatReason::kGemm);
}

TEST(MatrixUses, AGatherOfColumnsKeepsItsFloats) {
  MatrixGraph graph;
  graph.weight("w", {128, 128}).node("Gather", {"w", "ids"}, {"y"}).with("axis", std::int64_t{1});
  EXPECT_EQ(reason_of(graph), FloatReason::kGatherAxis);
}

TEST(MatrixUses, ProductsInBatchesKeepTheirFloats) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {4, 128, 48}), "w");
  EXPECT_EQ(reason_of(graph), FloatReason::kBatches);
}

TEST(MatrixUses, TypesWithoutAKernelKeepTheirFloats) {
  for (const std::int32_t type : {onnx::TensorProto::DOUBLE, onnx::TensorProto::BFLOAT16}) {
    MatrixGraph graph;
    multiplied(graph.weight("w", {128, 48}, type), "w");
    EXPECT_EQ(reason_of(graph), FloatReason::kType);
  }
}

TEST(MatrixUses, AnOutputOfTheGraphKeepsItsFloats) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 48}), "w").builder().output("w", kFloat, {128, 48});
  EXPECT_EQ(reason_of(graph), FloatReason::kGraphOutput);
}

TEST(MatrixUses, AnInputWithADefaultValueKeepsItsFloats) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 48}), "w").builder().input("w", kFloat, {128, 48});
  EXPECT_EQ(reason_of(graph), FloatReason::kReplaceable);
  graph.builder().model().set_ir_version(3);  // where each initializer is an input
  EXPECT_EQ(reason_of(graph), FloatReason::kNone);
}

TEST(MatrixUses, AFilledInputThatStaysKeepsItsFloats) {
  MatrixGraph graph;
  multiplied(graph, "w").builder().input("w", kFloat, {128, 48});
  const Model model = graph.model();
  std::vector<std::optional<StoredSlot>> stored(2);
  stored[1] = StoredSlot{kFloat, {128, 48}};
  EXPECT_EQ(weights_of(model, stored).at(0).reason, FloatReason::kNone);
  EXPECT_EQ(weights_of(model, stored, MatchedInputs::kKeep).at(0).reason,
            FloatReason::kReplaceable);
  EXPECT_THAT(weights_of(model), IsEmpty()) << "nothing fills it";
}

TEST(MatrixUses, AViewWhoseShapeIsComputedCannotBeFollowed) {
  MatrixGraph graph;
  graph.weight("w", {128, 48}).node("Reshape", {"w", "shape"}, {"r"});
  multiplied(graph, "r");
  const GraphWeight weight = weight_of(graph);
  EXPECT_EQ(weight.reason, FloatReason::kView);
  EXPECT_EQ(weight.detail, "Reshape");
}

TEST(MatrixUses, AnIdentityThatTheSaveFillsReadsNothing) {
  MatrixGraph graph;
  multiplied(graph.weight("w", {128, 48}), "w").node("Identity", {"w"}, {"other"});
  graph.node("Relu", {"other"}, {"r"});
  const Model model = graph.model();
  std::vector<std::optional<StoredSlot>> stored(model.facts().slots.size());
  EXPECT_EQ(weights_of(model, stored).at(0).reason, FloatReason::kReader);
  stored.back() = StoredSlot{kFloat, {128, 48}};
  ASSERT_EQ(model.facts().slots.back().name, "other");
  const Weights weights = weights_of(model, stored);
  ASSERT_THAT(weights, SizeIs(2));
  EXPECT_EQ(weights[0].reason, FloatReason::kNone);
  EXPECT_EQ(weights[1].reason, FloatReason::kReader);
}

TEST(MatrixUses, ALargeConstantIsAWeightAsWell) {
  MatrixGraph graph;
  graph.node("Constant", {}, {"w"});
  onnx::AttributeProto& value = *graph.graph().mutable_node(0)->add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(kFloat);
  value.mutable_t()->add_dims(128);
  value.mutable_t()->add_dims(48);
  value.mutable_t()->set_raw_data(std::string(std::size_t{128} * 48 * 4, '\0'));
  multiplied(graph, "w");
  const GraphWeight weight = weight_of(graph);
  expect_matrix(weight, {48, 128}, {RecipeStep::transpose()});
  EXPECT_EQ(weight.slot, kNoSlot);
  EXPECT_EQ(weight.inline_tensor, 0U);
}

// --- hostile graphs -----------------------------------------------------------------------------

TEST(MatrixUses, SizesPast32BitsAreKept) {
  MatrixGraph graph;
  const std::int64_t rows = std::int64_t{1} << 33;
  graph.weight("w", {rows, 128}).node("Gather", {"w", "ids"}, {"h"});
  expect_matrix(weight_of(graph), {rows, 128}, {});
}

TEST(MatrixUses, CyclesEndTheWalk) {
  MatrixGraph graph;
  graph.weight("w", {128, 128}).node("Transpose", {"b"}, {"a"}).node("Transpose", {"a"}, {"b"});
  graph.node("Identity", {"c"}, {"c"}).node("Transpose", {"w"}, {"a"});
  graph.node("MatMul", {"x", "a"}, {"y"}).node("Add", {"y", "y"}, {"y"});
  EXPECT_EQ(reason_of(graph), FloatReason::kView) << "another node defines a first";
}

TEST(MatrixUses, IncompleteNodesAreNotProducts) {
  using Names = std::vector<std::string>;
  const std::vector<std::pair<Names, Names>> ends = {
      {{"w"}, {"y"}}, {{"", "w"}, {"y"}}, {{"x", "w"}, {}}, {{"x", "w"}, {""}}, {{"w", ""}, {"y"}}};
  for (const char* op : {"MatMul", "Gemm", "Gather"}) {
    for (const auto& [inputs, outputs] : ends) {
      MatrixGraph graph;
      graph.weight("w", {128, 128}).node(op, inputs, outputs);
      EXPECT_NE(reason_of(graph), FloatReason::kNone) << op;
    }
  }
}

TEST(MatrixUses, NodesWithoutInputsOrOutputsAreLeftAlone) {
  MatrixGraph graph;
  graph.weight("w", {128, 128});
  for (const char* op : {"MatMul", "Gemm", "Gather", "Transpose", "Split", "TopK", "Cast", "If"}) {
    graph.node(op, {}, {}).node(op, {"w"}, {}).node(op, {"", "w"}, {""});
  }
  EXPECT_NE(reason_of(graph), FloatReason::kNone);
}

TEST(MatrixUses, WrongAttributesAndConstantsAreReasonsToo) {
  const std::vector<std::int64_t> wrong = {7, -9, std::int64_t{1} << 62, -(std::int64_t{1} << 62)};
  for (const char* op :
       {"Transpose", "Split", "Squeeze", "Unsqueeze", "Reshape", "Slice", "Gather", "Cast"}) {
    MatrixGraph graph;
    graph.weight("w", {128, 48}).integers("wrong", wrong);
    graph.node(op, {"w", "wrong", "wrong", "wrong", "wrong"}, {"v"}).with("perm", wrong);
    graph.with("axis", std::int64_t{1} << 40).with("to", std::int64_t{99});
    multiplied(graph, "v");
    EXPECT_NE(reason_of(graph), FloatReason::kNone) << op;
  }
}

TEST(MatrixUses, ManySlicesOfOneWeightTakeLittleTime) {
  constexpr int kSlices = 20000;
  MatrixGraph graph;
  graph.weight("w", {kSlices, 16, 64}).builder().input("x", kFloat, {2, 64});
  std::vector<std::string> names;
  for (int i = 0; i < kSlices; ++i) {
    names.push_back("s" + std::to_string(i));
  }
  graph.node("Split", {"w"}, names);
  for (const std::string& name : names) {
    graph.node("Squeeze", {name}, {name + "w"}).node("Transpose", {name + "w"}, {name + "t"});
    graph.node("MatMul", {"x", name + "t"}, {name + "y"});
  }
  EXPECT_THAT(weight_of(graph).matrices, SizeIs(kSlices));
}

}  // namespace
}  // namespace onnx_external
