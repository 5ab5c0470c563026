// What the data of a graph is, learned from the checkpoint that it was exported from.
#include "onnx_external/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "evidence/name_proof.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const Recipe kTranspose = {RecipeStep::transpose()};

std::string turned(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> made(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    made[i % columns * rows + i / columns] = values[i];
  }
  return f32(made);
}

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = first + 0.37F * static_cast<float>(i * i % 31) + static_cast<float>(i) / 1024;
  }
  return values;
}

TestTensor tensor(const std::string& name, const Shape& shape, const std::vector<float>& values) {
  return {.name = name, .shape = shape, .bytes = f32(values)};
}

class Learn : public testing::Test {
 protected:
  Result<LearnedMap> learn(const onnx::ModelProto& graph, const std::vector<TestTensor>& old,
                           const std::vector<TestTensor>& fresh,
                           const MappingOptions& options = {}) const {
    const Model model = Model::load(dir_.write("g.onnx", graph.SerializeAsString())).value();
    const Checkpoint before = open_one(dir_.write("old.pt", torch_zip(old)));
    const Checkpoint after = open_one(dir_.write("new.pt", torch_zip(fresh)));
    return learn_map(model, before, after, options);
  }
  // One slot "onnx::MatMul_1" with `bytes`, used once.
  static onnx::ModelProto one(const std::vector<std::int64_t>& dims, const std::string& bytes,
                              const std::string& name = "onnx::MatMul_1") {
    GraphBuilder b;
    b.input("x", kFloat, {1, 4}).initializer(name, kFloat, dims, bytes);
    b.node("MatMul", {"x", name}, {"y"});
    return b.model();
  }

  TempDir dir_;
};

const std::vector<float> kW = numbers(12, 1);
const std::vector<float> kV = numbers(12, 2);

TEST_F(Learn, ATransposedWeightIsPairedWithItsRecipe) {
  const auto learned = learn(one({4, 3}, turned(kW, 3, 4)), {tensor("fc.weight", {3, 4}, kW)},
                             {tensor("fc.weight", {3, 4}, kV)});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"onnx::MatMul_1", "fc.weight", kTranspose}));
  EXPECT_THAT(learned->constants, IsEmpty());
  EXPECT_THAT(learned->settled, IsEmpty());
}

TEST_F(Learn, AGraphInHalfPrecisionIsPairedWithTheCheckpointInFull) {
  const std::vector<float> w = {0.5F, 1.5F, -2, 3};
  const std::string halves = bytes_of<std::uint16_t>({0x3800, 0x3e00, 0xc000, 0x4200});
  GraphBuilder b;
  b.input("x", onnx::TensorProto::FLOAT16, {1, 2});
  b.initializer("h", onnx::TensorProto::FLOAT16, {4}, halves).node("Add", {"x", "h"}, {"y"});
  const auto learned =
      learn(b.model(), {tensor("k", {4}, w)},
            {{.name = "k", .dtype = DType::kFloat16, .shape = {4}, .bytes = noise(8, 1)}});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"h", "k", {RecipeStep::cast()}}));
}

TEST_F(Learn, ABrokenTieIsRefused) {
  GraphBuilder b;
  b.input("x", kFloat, {3, 4}).initializer("wte", kFloat, {3, 4}, f32(kW));
  b.initializer("onnx::MatMul_7", kFloat, {4, 3}, turned(kW, 3, 4));
  b.node("Add", {"x", "wte"}, {"s"}).node("MatMul", {"s", "onnx::MatMul_7"}, {"y"});
  b.model().mutable_graph()->mutable_node(1)->set_name("/head/MatMul");
  TestTensor tied{.name = "head.weight", .shape = {3, 4}, .shares = "wte"};
  const std::vector<TestTensor> old = {tensor("wte", {3, 4}, kW), tied};
  const std::string fresh = noise(48, 1);
  EXPECT_THAT(learn(b.model(), old,
                    {{.name = "wte", .shape = {3, 4}, .bytes = fresh},
                     {.name = "head.weight", .shape = {3, 4}, .bytes = fresh}}),
              IsOk());
  EXPECT_THAT(learn(b.model(), old,
                    {{.name = "wte", .shape = {3, 4}, .bytes = fresh},
                     {.name = "head.weight", .shape = {3, 4}, .bytes = noise(48, 2)}}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnEqualBytes));
}

TEST_F(Learn, NoRemedyKeepsOrIgnoresDataThatChanges) {
  // The value may be computed from `lost`, which is nowhere in the graph and differs now.
  GraphBuilder b;
  b.input("x", kFloat, {3, 4}).initializer("w", kFloat, {3, 4}, f32(kW));
  b.initializer("val_1", kFloat, {4}, f32(numbers(4, 9)));
  b.node("Add", {"x", "w"}, {"s"}).node("Add", {"s", "val_1"}, {"y"});
  const auto refused =
      learn(b.model(), {tensor("w", {3, 4}, kW), tensor("lost", {4}, {1, 2, 3, 4})},
            {tensor("w", {3, 4}, kV), tensor("lost", {4}, {5, 6, 7, 8})});
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous, "export the graph without folding"));
  EXPECT_THAT(refused.error().details->remedies, IsEmpty());
}

TEST_F(Learn, DataThatMayBeAConstantCanBeKeptByTheCaller) {
  // The value has the size of a tensor that changes, and is none of them.
  GraphBuilder b;
  b.input("x", kFloat, {3, 4}).initializer("w", kFloat, {3, 4}, f32(kW));
  b.initializer("val_1", kFloat, {3, 4}, f32(numbers(12, 9)));
  b.node("Add", {"x", "w"}, {"s"}).node("Add", {"s", "val_1"}, {"y"});
  const auto refused = learn(b.model(), {tensor("w", {3, 4}, kW)}, {tensor("w", {3, 4}, kV)});
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous, "export the graph without folding"));
  ASSERT_EQ(refused.error().details->remedies.size(), 1U);
  EXPECT_EQ(refused.error().details->remedies.front().option, RemedyOption::kKeep);
  EXPECT_EQ(refused.error().details->remedies.front().value, "NAMES");
}

TEST_F(Learn, ABrokenTieOfAReshapedViewIsRefused) {
  GraphBuilder b;
  b.input("x", kFloat, {3, 4}).initializer("wte", kFloat, {3, 4}, f32(kW));
  b.initializer("flat", kFloat, {12}, f32(kW));
  b.node("Add", {"x", "wte"}, {"s"}).node("Use", {"s", "flat"}, {"y"});
  const std::vector<TestTensor> old = {tensor("wte", {3, 4}, kW),
                                       {.name = "flat", .shape = {12}, .shares = "wte"}};
  const std::string fresh = noise(48, 1);
  EXPECT_THAT(learn(b.model(), old,
                    {{.name = "wte", .shape = {3, 4}, .bytes = fresh},
                     {.name = "flat", .shape = {12}, .bytes = fresh}}),
              IsOk());
  EXPECT_THAT(learn(b.model(), old,
                    {{.name = "wte", .shape = {3, 4}, .bytes = fresh},
                     {.name = "flat", .shape = {12}, .bytes = noise(48, 2)}}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnEqualBytes));
}

TEST_F(Learn, EqualBytesAreDistinguishedByNamesAndByModules) {
  GraphBuilder b;
  b.input("x", kFloat, {3, 4});
  b.initializer("a.bias", kFloat, {3}, f32({0, 0, 0}))
      .initializer("b.bias", kFloat, {3}, f32({0, 0, 0}));
  b.initializer("onnx::MatMul_7", kFloat, {4, 3}, turned(kW, 3, 4));
  b.node("Add", {"x", "a.bias"}, {"s"}).node("Add", {"s", "b.bias"}, {"t"});
  b.node("MatMul", {"t", "onnx::MatMul_7"}, {"y"});
  b.model().mutable_graph()->mutable_node(2)->set_name("/net/net.1/MatMul");
  const std::vector<TestTensor> old = {
      tensor("b.bias", {3}, {0, 0, 0}), tensor("a.bias", {3}, {0, 0, 0}),
      tensor("net.0.weight", {3, 4}, kW), tensor("net.1.weight", {3, 4}, kW)};
  const std::vector<TestTensor> fresh = {
      tensor("b.bias", {3}, {1, 2, 3}), tensor("a.bias", {3}, {4, 5, 6}),
      tensor("net.0.weight", {3, 4}, kV), tensor("net.1.weight", {3, 4}, numbers(12, 9))};
  const auto learned = learn(b.model(), old, fresh);
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"a.bias", "a.bias"}, MapEntry{"b.bias", "b.bias"},
                                        MapEntry{"onnx::MatMul_7", "net.1.weight", kTranspose}));
}

TEST_F(Learn, EqualBytesWithoutANameAreRefusedUnlessTheNewOnesAreEqualToo) {
  const std::vector<TestTensor> old = {tensor("p.weight", {3, 4}, kW),
                                       tensor("q.weight", {3, 4}, kW)};
  const auto graph = one({4, 3}, turned(kW, 3, 4));
  EXPECT_THAT(learn(graph, old,
                    {tensor("p.weight", {3, 4}, kV), tensor("q.weight", {3, 4}, numbers(12, 9))}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnEqualBytes));
  const auto tied =
      learn(graph, old, {tensor("p.weight", {3, 4}, kV), tensor("q.weight", {3, 4}, kV)});
  ASSERT_THAT(tied, IsOk());
  EXPECT_THAT(tied->map, ElementsAre(MapEntry{"onnx::MatMul_1", "p.weight", kTranspose}));
  const auto unchanged = learn(graph, old, old);
  ASSERT_THAT(unchanged, IsOk());
}

TEST_F(Learn, AMatrixThatIsItsOwnTransposeNeedsItsNameOrANewOneLikeIt) {
  const std::vector<float> symmetric = {1, 2, 3, 2, 5, 6, 3, 6, 9};
  const std::vector<TestTensor> old = {tensor("w", {3, 3}, symmetric)};
  const std::vector<TestTensor> fresh = {tensor("w", {3, 3}, numbers(9, 1))};
  EXPECT_THAT(learn(one({3, 3}, f32(symmetric)), old, fresh),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnSymmetric));
  const auto named = learn(one({3, 3}, f32(symmetric), "w"), old, fresh);
  ASSERT_THAT(named, IsOk());
  EXPECT_THAT(named->map, ElementsAre(MapEntry{"w", "w"}));
  const auto again =
      learn(one({3, 3}, f32(symmetric)), old, {tensor("w", {3, 3}, {7, 2, 3, 2, 7, 6, 3, 6, 7})});
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->map, ElementsAre(MapEntry{"onnx::MatMul_1", "w"}));
}

TEST_F(Learn, AReshapedKeyIsLeftAloneWhileItDoesNotChange) {
  const auto graph = one({1, 1, 4}, f32({1, 2, 3, 5}));
  const std::vector<TestTensor> old = {tensor("p", {4}, {1, 2, 3, 5})};
  const auto same = learn(graph, old, old);
  ASSERT_THAT(same, IsOk());
  EXPECT_THAT(same->map, IsEmpty());
  EXPECT_THAT(same->constants, ElementsAre("onnx::MatMul_1"));
  EXPECT_THAT(same->settled, ElementsAre("p"));
  EXPECT_THAT(learn(graph, old, {tensor("p", {4}, {1, 2, 3, 4})}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnReshaped));
}

TEST_F(Learn, ASingleNumberIsNotProof) {
  const auto graph = one({1}, f32({1}), "val_3");
  EXPECT_THAT(learn(graph, {tensor("beta", {1}, {1})}, {tensor("beta", {1}, {2})}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnCoincidence));
  const auto kept = learn(graph, {tensor("beta", {1}, {1})}, {tensor("beta", {1}, {1})});
  ASSERT_THAT(kept, IsOk());
  EXPECT_THAT(kept->constants, ElementsAre("val_3"));
}

// BatchNorm folded into the convolution before it.
TEST_F(Learn, DataThatMayBeComputedFromKeysIsRefusedUnlessAllOfThemStay) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("onnx::Conv_9", kFloat, {3, 4}, f32(numbers(12, 30)));
  b.initializer("fc.weight", kFloat, {3, 4}, f32(kW));
  b.node("MatMul", {"x", "onnx::Conv_9"}, {"s"}).node("MatMul", {"s", "fc.weight"}, {"y"});
  const TestTensor fc = tensor("fc.weight", {3, 4}, kW);
  const TestTensor conv = tensor("conv.weight", {3, 4}, numbers(12, 15));
  const TestTensor norm = tensor("bn.weight", {3}, {1, 2, 3});
  EXPECT_THAT(learn(b.model(), {fc, conv, norm}, {fc, conv, tensor("bn.weight", {3}, {2, 2, 3})}),
              ::testing::AllOf(FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnComputed),
                               FailsWith(ErrorCode::kAmbiguous, "'bn.weight'")));
  MappingOptions ignoring;
  ignoring.ignore = {"^bn\\."};
  ignoring.keep = {"onnx::Conv_9"};
  EXPECT_THAT(
      learn(b.model(), {fc, conv, norm}, {fc, conv, tensor("bn.weight", {3}, {2, 2, 3})}, ignoring),
      IsOk());
  EXPECT_THAT(learn(b.model(), {fc, conv, norm}, {fc, conv, norm}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnOtherModel));
  // Something that changes shows that the checkpoint is the right one.
  GraphBuilder other;
  other.input("x", kFloat, {1, 4});
  other.initializer("onnx::Conv_9", kFloat, {3, 4}, f32(numbers(12, 30)));
  other.initializer("head", kFloat, {5, 4}, f32(numbers(20, 3)));
  other.node("MatMul", {"x", "onnx::Conv_9"}, {"s"}).node("MatMul", {"s", "head"}, {"y"});
  const auto tuned = learn(other.model(), {conv, norm, tensor("head", {5, 4}, numbers(20, 3))},
                           {conv, norm, tensor("head", {5, 4}, numbers(20, 4))});
  ASSERT_THAT(tuned, IsOk());
  EXPECT_THAT(tuned->map, ElementsAre(MapEntry{"head", "head"}));
  EXPECT_THAT(tuned->constants, ElementsAre("onnx::Conv_9"));
  EXPECT_THAT(tuned->settled, UnorderedElementsAre("conv.weight", "bn.weight"));
}

TEST_F(Learn, AConstantOfAnotherSizeIsProvedOne) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("fc.weight", kFloat, {3, 4}, f32(kW));
  b.initializer("scale", kFloat, {}, f32({0.125F}))
      .initializer("mask", kFloat, {2, 2}, f32({0, -9, 0, 0}));
  b.node("Use", {"x", "fc.weight", "scale", "mask"}, {"y"});
  const auto learned =
      learn(b.model(), {tensor("fc.weight", {3, 4}, kW)}, {tensor("fc.weight", {3, 4}, kV)});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->constants, ElementsAre("scale", "mask"));
}

TEST_F(Learn, DataOfTheSizeOfAKeyThatChangesMayBeComputedFromIt) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("fc.weight", kFloat, {3, 4}, f32(kW));
  b.initializer("val_2", kFloat, {3, 4}, f32(numbers(12, 77)));
  b.node("Use", {"x", "fc.weight", "val_2"}, {"y"});
  EXPECT_THAT(
      learn(b.model(), {tensor("fc.weight", {3, 4}, kW)}, {tensor("fc.weight", {3, 4}, kV)}),
      FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnLikeChanged, {"val_2"}));
}

TEST_F(Learn, ASmallSlotOfSeveralNodesMayBeMergedWithAConstant) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("ln.weight", kFloat, {4}, f32({1, 2, 3, 4}));
  b.node("Mul", {"x", "ln.weight"}, {"s"}).node("Add", {"s", "ln.weight"}, {"y"});
  const std::vector<TestTensor> old = {tensor("ln.weight", {4}, {1, 2, 3, 4})};
  EXPECT_THAT(learn(b.model(), old, {tensor("ln.weight", {4}, {5, 6, 7, 8})}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnMerged));
  EXPECT_THAT(learn(b.model(), old, old), IsOk());
  b.model().set_producer_name("pytorch");
  b.model().set_producer_version("1.13.1");
  EXPECT_THAT(learn(b.model(), old, {tensor("ln.weight", {4}, {5, 6, 7, 8})}), IsOk())
      << "this exporter gives merged weights an Identity";
}

TEST_F(Learn, KeysThatShareASlotMustStayEqual) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4});
  b.initializer("a.weight", kFloat, {40, 50}, f32(numbers(2000, 1)));
  b.node("Mul", {"x", "a.weight"}, {"s"}).node("Add", {"s", "a.weight"}, {"y"});
  const auto at = [](const std::string& name, float first) {
    return tensor(name, {40, 50}, numbers(2000, first));
  };
  const std::vector<TestTensor> old = {at("a.weight", 1), at("b.weight", 1)};
  EXPECT_THAT(learn(b.model(), old, {at("a.weight", 2), at("b.weight", 3)}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnShared, {"b.weight"}));
  const auto tied = learn(b.model(), old, {at("a.weight", 2), at("b.weight", 2)});
  ASSERT_THAT(tied, IsOk());
  EXPECT_THAT(tied->map, ElementsAre(MapEntry{"a.weight", "a.weight"}));
}

TEST_F(Learn, AWeightInANodeMustStay) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("fc.weight", kFloat, {3, 4}, f32(kW));
  b.node("Constant", {}, {"c"}).node("Use", {"x", "c", "fc.weight"}, {"y"});
  auto* value = b.model().mutable_graph()->mutable_node(0)->add_attribute();
  value->set_name("value");
  value->set_type(onnx::AttributeProto::TENSOR);
  value->mutable_t()->set_data_type(kFloat);
  value->mutable_t()->add_dims(4);
  value->mutable_t()->set_raw_data(f32({1, 2, 3, 5}));
  const TestTensor fc = tensor("fc.weight", {3, 4}, kW);
  EXPECT_THAT(
      learn(b.model(), {fc, tensor("p", {4}, {1, 2, 3, 5})}, {fc, tensor("p", {4}, {1, 2, 3, 6})}),
      FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnAttribute, {"c"}));
  EXPECT_THAT(
      learn(b.model(), {fc, tensor("p", {4}, {1, 2, 3, 5})}, {fc, tensor("p", {4}, {1, 2, 3, 5})}),
      IsOk());
}

TEST_F(Learn, IdentitiesOverOneTensorGetTheirOwnKeys) {
  GraphBuilder b;
  b.input("x", kFloat, {3}).initializer("a.bias", kFloat, {3}, f32({0, 0, 0}));
  b.node("Identity", {"a.bias"}, {"b.bias"});
  b.node("Add", {"x", "a.bias"}, {"s"}).node("Add", {"s", "b.bias"}, {"y"});
  const auto learned =
      learn(b.model(), {tensor("a.bias", {3}, {0, 0, 0}), tensor("b.bias", {3}, {0, 0, 0})},
            {tensor("a.bias", {3}, {1, 2, 3}), tensor("b.bias", {3}, {4, 5, 6})});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map,
              UnorderedElementsAre(MapEntry{"a.bias", "a.bias"}, MapEntry{"b.bias", "b.bias"}));
}

TEST_F(Learn, TwoBranchesWithOneNameAndDifferentDataAreRefused) {
  GraphBuilder b;
  b.input("c", onnx::TensorProto::BOOL, {}).node("If", {"c"}, {"y"});
  b.begin_subgraph("then_branch").initializer("w", kFloat, {3, 4}, f32(kW));
  b.node("Neg", {"w"}, {"n"}).end_subgraph();
  b.begin_subgraph("else_branch").initializer("w", kFloat, {3, 4}, f32(kV));
  b.node("Neg", {"w"}, {"m"}).end_subgraph();
  EXPECT_THAT(learn(b.model(), {tensor("p", {3, 4}, kW), tensor("q", {3, 4}, kV)},
                    {tensor("p", {3, 4}, numbers(12, 8)), tensor("q", {3, 4}, numbers(12, 9))}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnSeveralSlots));
}

TEST_F(Learn, IntegersAreDataOnlyWhereTheyAreMany) {
  const auto ints = [](const std::string& name, const std::vector<std::int64_t>& values) {
    return TestTensor{.name = name,
                      .dtype = DType::kInt64,
                      .shape = {static_cast<std::int64_t>(values.size())},
                      .bytes = bytes_of(values)};
  };
  GraphBuilder b;
  b.input("x", kFloat, {3});
  b.initializer("i", kInt64, {8}, bytes_of<std::int64_t>({3, 1, 2, 0, 7, 6, 5, 4}));
  b.initializer("zero", kInt64, {}, bytes_of<std::int64_t>({0}));
  b.node("Use", {"x", "i", "zero"}, {"y"});
  const auto learned =
      learn(b.model(), {ints("order", {3, 1, 2, 0, 7, 6, 5, 4}), ints("steps", {0})},
            {ints("order", {0, 1, 2, 3, 7, 6, 5, 4}), ints("steps", {90})});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"i", "order"}));
}

// Says of the value what torch's exporter and optimizer do, in a field that the classes may not
// know.
void mark(onnx::ModelProto& proto, const std::string& name, const std::string& key,
          const std::string& value) {
  onnx::StringStringEntryProto entry;
  entry.set_key(key);
  entry.set_value(value);
  onnx::ValueInfoProto newer;
  constexpr int kMetadata = 4;
  newer.mutable_unknown_fields()->AddLengthDelimited(kMetadata, entry.SerializeAsString());
  onnx::ValueInfoProto& info = *proto.mutable_graph()->add_value_info();
  ASSERT_TRUE(info.ParseFromString(newer.SerializeAsString()));
  info.set_name(name);
}

void mark_folded(onnx::ModelProto& proto, const std::string& name, const std::string& names) {
  mark(proto, name, "pkg.onnxscript.optimizer.folded_from", names);
}

void mark_parameter(onnx::ModelProto& proto, const std::string& name) {
  mark(proto, name, "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER");
}

TEST_F(Learn, WhatWasComputedFromKeysThatStayIsKept) {
  const auto mask = [](const std::string& bytes) {
    return TestTensor{.name = "mask", .dtype = DType::kBool, .shape = {4}, .bytes = bytes};
  };
  const std::string before("\1\0\1\0", 4);
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("w", kFloat, {3, 4}, f32(kW));
  b.initializer("not", onnx::TensorProto::BOOL, {4}, std::string("\0\1\0\1", 4));
  b.node("Where", {"not", "x", "w"}, {"y"});
  mark_folded(b.model(), "not", "['mask', 'val_3']");
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW), mask(before)};
  const auto kept = learn(b.model(), old, {tensor("w", {3, 4}, kV), mask(before)});
  ASSERT_THAT(kept, IsOk());
  EXPECT_THAT(kept->constants, ElementsAre("not"));
  EXPECT_THAT(kept->settled, ElementsAre("mask"));
  EXPECT_THAT(learn(b.model(), old, {tensor("w", {3, 4}, kV), mask(std::string("\1\1\1\0", 4))}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnFolded));
}

// "w" by name and, as a value that was computed from `sources`, "val_7" of another size.
onnx::ModelProto with_computed(const std::string& sources) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("w", kFloat, {3, 4}, f32(kW));
  b.initializer("val_7", kFloat, {2, 4}, f32(numbers(8, 9)));
  b.node("Gather", {"w", "x"}, {"s"}).node("Add", {"s", "val_7"}, {"y"});
  mark_folded(b.model(), "val_7", sources);
  return b.model();
}

TEST_F(Learn, WhatWasComputedFromAKeyThatChangesIsRefusedEvenIfTheKeyHasASlot) {
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW)};
  EXPECT_THAT(learn(with_computed("['arange', 'w', 'val_3']"), old, {tensor("w", {3, 4}, kV)}),
              FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnFolded));
  EXPECT_THAT(learn(with_computed("['arange', 'w', 'val_3']"), old, old), IsOk());
}

// tanh of 0 is 0, but the value is not the key.
TEST_F(Learn, WhatWasComputedFromAKeyOfOneRepeatedNumberIsNotTheKey) {
  GraphBuilder b;
  b.input("x", kFloat, {1, 3}).initializer("tanh", kFloat, {3}, f32({0, 0, 0}));
  b.initializer("w", kFloat, {3, 4}, f32(kW)).node("MatMul", {"x", "w"}, {"s"});
  b.node("Mul", {"s", "tanh"}, {"y"});
  mark_folded(b.model(), "tanh", "['gate']");
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW), tensor("gate", {3}, {0, 0, 0})};
  EXPECT_THAT(learn(b.model(), old, {tensor("w", {3, 4}, kV), tensor("gate", {3}, {1, 2, 3})}),
              FailsWith(ErrorCode::kAmbiguous, "'tanh'"));
  EXPECT_THAT(learn(b.model(), old, old), IsOk());
}

TEST_F(Learn, WhatWasComputedFromNoKeyIsAConstant) {
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW), tensor("gone", {2, 4}, kV)};
  const std::vector<TestTensor> fresh = {tensor("w", {3, 4}, kV), tensor("gone", {2, 4}, kW)};
  const auto learned = learn(with_computed("['arange', 'cos', 'rope.inv_freq']"), old, fresh);
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->constants, ElementsAre("val_7"));
  EXPECT_THAT(learn(with_computed("['arange', 'rope.table']"), old, fresh),
              ::testing::AllOf(FailsListing(ErrorCode::kAmbiguous, ErrorKind::kLearnComputed),
                               FailsWith(ErrorCode::kAmbiguous, "'gone'")));
}

TEST_F(Learn, AKeyThatTheExportedGraphDoesNotUseIsLeftOut) {
  onnx::ModelProto graph = with_computed("['arange', 'val_3']");
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW), tensor("seg", {5}, numbers(5, 1))};
  const std::vector<TestTensor> fresh = {tensor("w", {3, 4}, kV),
                                         tensor("seg", {5}, numbers(5, 2))};
  EXPECT_THAT(learn(graph, old, fresh)->settled, IsEmpty());  // who knows what the exporter did
  mark_parameter(graph, "w");
  EXPECT_THAT(learn(graph, old, fresh)->settled, ElementsAre("seg"));
}

TEST_F(Learn, AKeyOfOneRepeatedNumberMayHaveBeenRemovedAtExport) {
  onnx::ModelProto graph = with_computed("['arange', 'val_3']");
  mark_parameter(graph, "w");
  const std::vector<TestTensor> old = {tensor("w", {3, 4}, kW), tensor("scale", {3}, {1, 1, 1})};
  const std::vector<TestTensor> fresh = {tensor("w", {3, 4}, kV), tensor("scale", {3}, {1, 2, 3})};
  EXPECT_THAT(learn(graph, old, fresh)->settled, IsEmpty());
  EXPECT_THAT(learn(graph, old, old)->settled, ElementsAre("scale"));
}

TEST_F(Learn, AKeyThatTheNewCheckpointLacksIsTheOneThatTheOldTiesToIt) {
  TestTensor tied{.name = "head.weight", .shape = {3, 4}, .shares = "wte"};
  const std::vector<TestTensor> old = {tensor("wte", {3, 4}, kW), tied};
  const auto learned = learn(one({3, 4}, f32(kW), "head.weight"), old, {tensor("wte", {3, 4}, kV)});
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"head.weight", "wte"}));
}

TEST_F(Learn, OneOfEqualKeysIsTheOneThatTheExporterNames) {
  const std::vector<TestTensor> old = {tensor("a.bias", {2, 4}, numbers(8, 3)),
                                       tensor("b.bias", {2, 4}, numbers(8, 3)),
                                       tensor("fc.weight", {3, 4}, kW)};
  const std::vector<TestTensor> fresh = {tensor("a.bias", {2, 4}, numbers(8, 1)),
                                         tensor("b.bias", {2, 4}, numbers(8, 2)),
                                         tensor("fc.weight", {3, 4}, kV)};
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("fc.weight", kFloat, {3, 4}, f32(kW));
  b.initializer("a.bias", kFloat, {2, 4}, f32(numbers(8, 3)));
  b.initializer("val_7", kFloat, {2, 4}, f32(numbers(8, 3)));
  b.node("Use", {"x", "fc.weight", "a.bias", "val_7"}, {"y"});
  EXPECT_THAT(learn(b.model(), old, fresh), FailsWith(ErrorCode::kAmbiguous, "'val_7'"));
  mark_folded(b.model(), "val_7", "['b.bias']");
  const auto learned = learn(b.model(), old, fresh);
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, Contains(MapEntry{"val_7", "b.bias"}));
}

TEST_F(Learn, KeysThatTheNewCheckpointLacksAreNamed) {
  EXPECT_THAT(learn(one({4, 3}, turned(kW, 3, 4)), {tensor("fc.weight", {3, 4}, kW)},
                    {tensor("other", {3, 4}, kV)}),
              FailsListing(ErrorCode::kNotFound, ErrorKind::kLearnLacking, {"onnx::MatMul_1"}));
}

TEST_F(Learn, AnotherCheckpointThanTheExportedOneIsRefused) {
  EXPECT_THAT(learn(one({4, 3}, turned(kW, 3, 4)), {tensor("fc.weight", {3, 4}, kV)},
                    {tensor("fc.weight", {3, 4}, kV)}),
              FailsWith(ErrorCode::kNotFound, "contains no data of the old checkpoint"));
}

TEST_F(Learn, WhatTheOptionsNameIsLeftToThem) {
  MappingOptions options;
  options.map = {{"onnx::MatMul_1", "fc.weight"}};
  GraphBuilder b;
  b.input("x", kFloat, {1, 4}).initializer("onnx::MatMul_1", kFloat, {4, 3}, turned(kW, 3, 4));
  b.initializer("v", kFloat, {12}, f32(kV)).node("Use", {"x", "onnx::MatMul_1", "v"}, {"y"});
  const auto learned = learn(b.model(), {tensor("fc.weight", {3, 4}, kW), tensor("v", {12}, kV)},
                             {tensor("fc.weight", {3, 4}, kV), tensor("v", {12}, kW)}, options);
  ASSERT_THAT(learned, IsOk());
  EXPECT_THAT(learned->map, ElementsAre(MapEntry{"v", "v"}));
  const MappingOptions merged = with_learned(options, *learned);
  EXPECT_EQ(merged.map, options.map);
  EXPECT_EQ(merged.learned, learned->map);
}

TEST(NameProof, AModuleIsReadFromTheNamesOfNodes) {
  EXPECT_EQ(module_of_node("/layers.0/fc/MatMul"), "layers.0.fc");
  EXPECT_EQ(module_of_node("/net/net.0/Relu"), "net.0");
  EXPECT_EQ(module_of_node("/a/net/net.0/net.0.1/Relu_3"), "a.net.0.1");
  EXPECT_EQ(module_of_node("/MatMul"), "");
  EXPECT_EQ(module_of_node("MatMul_3"), "");
}

}  // namespace
}  // namespace onnx_external
