#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

Model model_of(GraphBuilder& builder) {
  auto model = Model::from_proto(builder.model(), {});
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

std::uint32_t slot_named(const Model& model, const std::string& name) {
  const auto& slots = model.facts().slots;
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name == name) {
      return i;
    }
  }
  return Attachment::kNoSlot;
}

Attachment external(const Model& model, const std::string& slot, const Shape& dims) {
  const auto bytes = onnx_nbytes(kFloat, dims);
  return {slot_named(model, slot), slot, kFloat, dims,
          ExternalRef{"initializers/" + slot, 0, *bytes, ""}};
}

Status attach(Model& model, const std::vector<Attachment>& all, MatchedInputs inputs) {
  Status status = model.attach(all, inputs);
  return status ? model.refresh() : status;
}

std::vector<std::string> initializers(const onnx::GraphProto& graph) {
  std::vector<std::string> names;
  for (const auto& tensor : graph.initializer()) {
    names.push_back(tensor.name());
  }
  return names;
}

std::vector<std::string> inputs(const Model& model) {
  return model.facts().graph_inputs;
}

GraphBuilder& two_weights(GraphBuilder& b) {
  b.input("x", kFloat, {1, 2}).input("a", kFloat, {2, 2}).input("b", kFloat, {2, 2});
  b.node("MatMul", {"x", "a"}, {"y"}).node("MatMul", {"y", "b"}, {"z"});
  b.output("z", kFloat, {1, 2});
  return b;
}

TEST(Attach, AFilledInputBecomesAnInitializerInDeclarationOrder) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {external(model, "b", {2, 2}), external(model, "a", {2, 2})};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  EXPECT_THAT(initializers(model.proto().graph()), ElementsAre("a", "b"));
  EXPECT_THAT(inputs(model), ElementsAre("x"));
  EXPECT_EQ(model.external_tensors().size(), 2U);
  EXPECT_EQ(model.external_tensors()[0].location, "initializers/a");
  EXPECT_EQ(model.facts().slots[slot_named(model, "a")].kind, SlotKind::kInitializer);
}

TEST(Attach, InputsStayWhenAskedTo) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {external(model, "a", {2, 2})};
  ASSERT_THAT(attach(model, all, MatchedInputs::kKeep), IsOk());
  EXPECT_THAT(inputs(model), ElementsAre("x", "a", "b"));
}

TEST(Attach, BeforeIrVersion4EveryInitializerIsAnInput) {
  GraphBuilder b(3);
  two_weights(b).node("Add", {"z", "open"}, {"out"}).output("out", kFloat, {1, 2});
  Model model = model_of(b);
  const std::vector<Attachment> all = {external(model, "a", {2, 2}), external(model, "open", {2})};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  EXPECT_THAT(inputs(model), ElementsAre("x", "a", "b", "open"));
  const auto& type = model.proto().graph().input(3).type().tensor_type();
  EXPECT_EQ(type.elem_type(), kFloat);
  EXPECT_EQ(type.shape().dim(0).dim_value(), 2);
}

TEST(Attach, AFilledIdentityGoes) {
  GraphBuilder b;
  b.input("a", kFloat, {2}).node("Identity", {"a"}, {"b"}).node("Identity", {"b"}, {"c"});
  b.node("Sum", {"a", "b", "c"}, {"y"}).output("y", kFloat, {2});
  Model model = model_of(b);
  const std::vector<Attachment> all = {external(model, "a", {2}), external(model, "b", {2})};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  EXPECT_THAT(initializers(model.proto().graph()), ElementsAre("a", "b"));
  ASSERT_EQ(model.proto().graph().node_size(), 2);
  EXPECT_EQ(model.proto().graph().node(0).output(0), "c") << "an unfilled Identity stays";
}

TEST(Attach, ReplacesAnInitializerInPlace) {
  GraphBuilder b;
  b.initializer("first", kFloat, {1}, "abcd").initializer("w", kFloat, {2}, "abcdabcd");
  b.node("Add", {"first", "w"}, {"y"}).output("y", kFloat, {2});
  b.model().mutable_graph()->mutable_initializer(1)->set_doc_string("kept");
  Model model = model_of(b);
  ASSERT_THAT(attach(model, std::vector{external(model, "w", {2})}, MatchedInputs::kRemove),
              IsOk());
  const onnx::TensorProto& tensor = model.proto().graph().initializer(1);
  EXPECT_EQ(tensor.name(), "w");
  EXPECT_EQ(tensor.doc_string(), "kept");
  EXPECT_FALSE(tensor.has_raw_data());
  EXPECT_EQ(tensor.data_location(), onnx::TensorProto::EXTERNAL);
}

TEST(Attach, InlineBytesReplaceExternalEntries) {
  GraphBuilder b;
  b.external("w", kInt64, {1}, {{"location", "old"}});
  b.node("Neg", {"w"}, {"y"}).output("y", kInt64, {1});
  Model model = model_of(b);
  const std::vector<Attachment> all = {{0, "", kInt64, {1}, std::string("12345678")}};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  const onnx::TensorProto& tensor = model.proto().graph().initializer(0);
  EXPECT_EQ(tensor.raw_data(), "12345678");
  EXPECT_EQ(tensor.external_data_size(), 0);
  EXPECT_NE(tensor.data_location(), onnx::TensorProto::EXTERNAL);
}

TEST(Attach, FillsTheInitializersOfSubgraphsThere) {
  GraphBuilder b;
  b.input("c", onnx::TensorProto::BOOL, {}).node("If", {"c"}, {"y"});
  b.begin_subgraph("then_branch").initializer("w", kFloat, {2}, "");
  b.node("Neg", {"w"}, {"t"}).output("t", kFloat, {2}).end_subgraph().output("y", kFloat, {2});
  Model model = model_of(b);
  ASSERT_THAT(attach(model, std::vector{external(model, "w", {2})}, MatchedInputs::kRemove),
              IsOk());
  EXPECT_EQ(model.proto().graph().initializer_size(), 0);
  EXPECT_EQ(model.external_tensors()[0].graph, 1U);
}

TEST(Attach, AddsNewInitializersLast) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {
      {Attachment::kNoSlot, "extra", kFloat, {1}, ExternalRef{"e", 0, 4, ""}},
      external(model, "a", {2, 2})};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  EXPECT_THAT(initializers(model.proto().graph()), ElementsAre("a", "extra"));
}

TEST(Attach, RefusesABadSlotAndATakenName) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const Attachment a = external(model, "a", {2, 2});
  EXPECT_THAT(model.attach(std::vector{a, a}, MatchedInputs::kRemove),
              FailsWith(ErrorCode::kInvalidArgument, "filled twice"));
  Attachment bad = a;
  bad.slot = 99;
  EXPECT_THAT(model.attach(std::vector{bad}, MatchedInputs::kRemove),
              FailsWith(ErrorCode::kInvalidArgument, "does not exist"));
  for (const char* name : {"x", "y", ""}) {
    bad.slot = Attachment::kNoSlot;
    bad.name = name;
    EXPECT_THAT(model.attach(std::vector{bad}, MatchedInputs::kRemove),
                FailsWith(ErrorCode::kInvalidArgument, "defines that name"));
  }
  EXPECT_EQ(model.proto().graph().initializer_size(), 0);
}

TEST(Attach, AnElementTypeFromTheFuturePasses) {
  GraphBuilder b;
  b.node("Neg", {"w"}, {"y"}).output("y", kFloat, {4});
  Model model = model_of(b);
  const std::vector<Attachment> all = {{0, "", 99, {4}, ExternalRef{"w", 0, 2, ""}}};
  ASSERT_THAT(attach(model, all, MatchedInputs::kRemove), IsOk());
  EXPECT_EQ(model.external_tensors()[0].data_type, 99);
}

}  // namespace
}  // namespace onnx_external
