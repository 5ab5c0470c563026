#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx/cut_tensors.h"
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

// The file that the pieces make; nothing in it may be deferred or in another file.
std::string file_of(const ModelPieces& pieces) {
  std::string file;
  for (const ModelPiece& piece : pieces.pieces) {
    EXPECT_EQ(piece.from, ModelPiece::From::kText);
    file += pieces.text.substr(piece.offset, piece.bytes);
  }
  EXPECT_EQ(file.size(), pieces.bytes);
  return file;
}

// A graph with something in every place that new initializers must not disturb.
GraphBuilder& full_graph(GraphBuilder& b) {
  two_weights(b).initializer("given", kFloat, {2}, "abcdabcd");
  b.node("Identity", {"given"}, {"twin"}).node("Add", {"z", "open"}, {"out"});
  b.output("out", kFloat, {1, 2}).value_info("y", kFloat, {1, 2});
  b.model().set_producer_name("maker");
  b.model().add_metadata_props()->set_key("key");
  b.model().add_functions()->set_name("function");
  b.model().mutable_graph()->set_name("graph");
  b.model().mutable_graph()->set_doc_string("text");
  // A field of a newer onnx.
  b.model().mutable_graph()->mutable_unknown_fields()->AddLengthDelimited(99, "new");
  b.model().mutable_unknown_fields()->AddVarint(98, 1);
  return b;
}

TEST(AttachEncoded, MakesTheSameFileAsAttach) {
  for (const std::int64_t version : {3, 8}) {
    GraphBuilder b(version);
    full_graph(b);
    Model plain = model_of(b);
    Model written = model_of(b);
    const std::vector<Attachment> all = {
        external(plain, "open", {2}),
        external(plain, "b", {2, 2}),
        external(plain, "given", {2}),
        external(plain, "twin", {2}),
        {slot_named(plain, "a"), "", kFloat, {1}, std::string("1234")},
        {Attachment::kNoSlot, "extra", kFloat, {}, ExternalRef{"e", 4096, 4, "sha"}}};
    ASSERT_THAT(plain.attach(all, MatchedInputs::kRemove), IsOk());
    auto encoded = written.attach_encoded(all, MatchedInputs::kRemove);
    ASSERT_THAT(encoded, IsOk());
    EXPECT_EQ(written.proto().graph().initializer_size(), 1);
    const auto pieces = model_pieces(written, *std::move(encoded));
    ASSERT_THAT(pieces, IsOk());
    EXPECT_EQ(file_of(*pieces), plain.serialize().value());
  }
}

TEST(AttachEncoded, MakesTheSameFileWhenTheGraphWasEmpty) {
  GraphBuilder b;
  Model plain = model_of(b);
  Model written = model_of(b);
  const std::vector<Attachment> all = {
      {Attachment::kNoSlot, "extra", kFloat, {1}, ExternalRef{"e", 0, 4, ""}}};
  ASSERT_THAT(plain.attach(all, MatchedInputs::kRemove), IsOk());
  auto encoded = written.attach_encoded(all, MatchedInputs::kRemove);
  ASSERT_THAT(encoded, IsOk());
  const auto pieces = model_pieces(written, *std::move(encoded));
  ASSERT_THAT(pieces, IsOk());
  EXPECT_EQ(file_of(*pieces), plain.serialize().value());
}

TEST(AttachEncoded, DefersBytesThatComeLater) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {
      {slot_named(model, "a"), "", kFloat, {2, 2}, DeferredBytes{7, 16}},
      external(model, "b", {2, 2})};
  auto encoded = model.attach_encoded(all, MatchedInputs::kRemove);
  ASSERT_THAT(encoded, IsOk());
  const auto pieces = model_pieces(model, *std::move(encoded));
  ASSERT_THAT(pieces, IsOk());
  ASSERT_EQ(pieces->pieces.size(), 3U);
  EXPECT_EQ(pieces->pieces[1].from, ModelPiece::From::kDeferred);
  EXPECT_EQ(pieces->pieces[1].number, 7U);
  std::string file = pieces->text;
  file.insert(pieces->pieces[0].bytes, "0123456789abcdef");
  onnx::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(file));
  ASSERT_THAT(initializers(read.graph()), ElementsAre("a", "b"));
  EXPECT_EQ(read.graph().initializer(0).raw_data(), "0123456789abcdef");
}

TEST(AttachEncoded, GivesTheSameASecondTime) {
  GraphBuilder b;
  Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {external(model, "a", {2, 2})};
  const auto first = model.attach_encoded(all, MatchedInputs::kRemove);
  const auto second = model.attach_encoded(all, MatchedInputs::kRemove);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first.value(), second.value());
  EXPECT_EQ(model.proto().graph().input_size(), 2);
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
