#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "onnx/external_data.h"
#include "onnx/graph_facts.h"
#include "onnx/model_edits.h"
#include "onnx/model_segments.h"
#include "onnx_external/model.h"
#include "support/edited_model.h"
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
  return kNoSlot;
}

Attachment external(const Model& model, const std::string& slot, const Shape& dims) {
  const auto bytes = onnx_nbytes(kFloat, dims);
  return {slot_named(model, slot), slot, kFloat, dims,
          ExternalRef{"initializers/" + slot, 0, *bytes, ""}};
}

Result<ModelEdits> edits_of(const Model& model, const std::vector<Attachment>& all,
                            MatchedInputs inputs = MatchedInputs::kRemove) {
  ModelEdits edits;
  TRY(attach(model, all, inputs, edits));
  return edits;
}

Result<Model> attached(const Model& given, const std::vector<Attachment>& all,
                       MatchedInputs inputs = MatchedInputs::kRemove) {
  TRY_ASSIGN(auto edits, edits_of(given, all, inputs));
  return edited_model(given, std::move(edits));
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
  const Model given = model_of(two_weights(b));
  const std::vector<Attachment> all = {external(given, "b", {2, 2}), external(given, "a", {2, 2})};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(initializers(model->proto().graph()), ElementsAre("a", "b"));
  EXPECT_THAT(inputs(*model), ElementsAre("x"));
  EXPECT_EQ(model->external_tensors().size(), 2U);
  EXPECT_EQ(model->external_tensors()[0].location, "initializers/a");
  EXPECT_EQ(model->facts().slots[slot_named(*model, "a")].kind, SlotKind::kInitializer);
}

TEST(Attach, InputsStayWhenAskedTo) {
  GraphBuilder b;
  const Model given = model_of(two_weights(b));
  const std::vector<Attachment> all = {external(given, "a", {2, 2})};
  const auto model = attached(given, all, MatchedInputs::kKeep);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(inputs(*model), ElementsAre("x", "a", "b"));
}

TEST(Attach, BeforeIrVersion4EveryInitializerIsAnInput) {
  GraphBuilder b(3);
  two_weights(b).node("Add", {"z", "open"}, {"out"}).output("out", kFloat, {1, 2});
  const Model given = model_of(b);
  const std::vector<Attachment> all = {external(given, "a", {2, 2}), external(given, "open", {2})};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(inputs(*model), ElementsAre("x", "a", "b", "open"));
  const auto& type = model->proto().graph().input(3).type().tensor_type();
  EXPECT_EQ(type.elem_type(), kFloat);
  EXPECT_EQ(type.shape().dim(0).dim_value(), 2);
}

TEST(Attach, AFilledIdentityGoes) {
  GraphBuilder b;
  b.input("a", kFloat, {2}).node("Identity", {"a"}, {"b"}).node("Identity", {"b"}, {"c"});
  b.node("Sum", {"a", "b", "c"}, {"y"}).output("y", kFloat, {2});
  const Model given = model_of(b);
  const std::vector<Attachment> all = {external(given, "a", {2}), external(given, "b", {2})};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(initializers(model->proto().graph()), ElementsAre("a", "b"));
  ASSERT_EQ(model->proto().graph().node_size(), 2);
  EXPECT_EQ(model->proto().graph().node(0).output(0), "c") << "an unfilled Identity stays";
}

TEST(Attach, ReplacesAnInitializerInPlace) {
  GraphBuilder b;
  b.initializer("first", kFloat, {1}, "abcd").initializer("w", kFloat, {2}, "abcdabcd");
  b.node("Add", {"first", "w"}, {"y"}).output("y", kFloat, {2});
  b.model().mutable_graph()->mutable_initializer(1)->set_doc_string("kept");
  const Model given = model_of(b);
  const auto model = attached(given, std::vector{external(given, "w", {2})});
  ASSERT_THAT(model, IsOk());
  const onnx::TensorProto& tensor = model->proto().graph().initializer(1);
  EXPECT_EQ(tensor.name(), "w");
  EXPECT_EQ(tensor.doc_string(), "kept");
  EXPECT_FALSE(tensor.has_raw_data());
  EXPECT_EQ(tensor.data_location(), onnx::TensorProto::EXTERNAL);
}

TEST(Attach, InlineBytesReplaceExternalEntries) {
  GraphBuilder b;
  b.external("w", kInt64, {1}, {{"location", "old"}});
  b.node("Neg", {"w"}, {"y"}).output("y", kInt64, {1});
  const Model given = model_of(b);
  const std::vector<Attachment> all = {{0, "", kInt64, {1}, std::string("12345678")}};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  const onnx::TensorProto& tensor = model->proto().graph().initializer(0);
  EXPECT_EQ(tensor.raw_data(), "12345678");
  EXPECT_EQ(tensor.external_data_size(), 0);
  EXPECT_NE(tensor.data_location(), onnx::TensorProto::EXTERNAL);
}

TEST(Attach, FillsTheInitializersOfSubgraphsThere) {
  GraphBuilder b;
  b.input("c", onnx::TensorProto::BOOL, {}).node("If", {"c"}, {"y"});
  b.begin_subgraph("then_branch").initializer("w", kFloat, {2}, "");
  b.node("Neg", {"w"}, {"t"}).output("t", kFloat, {2}).end_subgraph().output("y", kFloat, {2});
  const Model given = model_of(b);
  const auto model = attached(given, std::vector{external(given, "w", {2})});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->proto().graph().initializer_size(), 0);
  EXPECT_EQ(model->external_tensors()[0].graph, 1U);
}

TEST(Attach, AddsNewInitializersLast) {
  GraphBuilder b;
  const Model given = model_of(two_weights(b));
  const std::vector<Attachment> all = {{kNoSlot, "extra", kFloat, {1}, ExternalRef{"e", 0, 4, ""}},
                                       external(given, "a", {2, 2})};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(initializers(model->proto().graph()), ElementsAre("a", "extra"));
}

TEST(Attach, RefusesABadSlotAndATakenName) {
  GraphBuilder b;
  const Model model = model_of(two_weights(b));
  const Attachment a = external(model, "a", {2, 2});
  EXPECT_THAT(edits_of(model, {a, a}), FailsWith(ErrorCode::kInvalidArgument, "filled twice"));
  Attachment bad = a;
  bad.slot = 99;
  EXPECT_THAT(edits_of(model, {bad}), FailsWith(ErrorCode::kInvalidArgument, "does not exist"));
  for (const char* name : {"x", "y", ""}) {
    bad.slot = kNoSlot;
    bad.name = name;
    ModelEdits edits;
    EXPECT_THAT(attach(model, std::vector{a, bad}, MatchedInputs::kRemove, edits),
                FailsWith(ErrorCode::kInvalidArgument, "defines that name"));
    EXPECT_TRUE(edits.replaced.empty() && edits.removed.empty() && edits.added.empty());
  }
  EXPECT_EQ(model.proto().graph().initializer_size(), 0);
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

// The message as protobuf's own classes change it.
class ChangedMessage {
 public:
  ChangedMessage(const Model& model, std::vector<Attachment> all)
      : facts_(model.facts()), proto_(model.proto()), graph_(*proto_.mutable_graph()) {
    std::stable_sort(all.begin(), all.end(), [](const Attachment& left, const Attachment& right) {
      return left.slot < right.slot;
    });
    for (const Attachment& attachment : all) {
      const bool is_new = attachment.slot == kNoSlot;
      put(is_new ? attachment.name : facts_.slots[attachment.slot].name, attachment);
      if (!is_new && facts_.slots[attachment.slot].kind == SlotKind::kIdentityOutput) {
        remove(*graph_.mutable_node(), [&](const onnx::NodeProto& node) {
          return node.output(0) == facts_.slots[attachment.slot].name;
        });
      }
    }
  }

  [[nodiscard]] std::string bytes() const { return proto_.SerializeAsString(); }

 private:
  void put(const std::string& name, const Attachment& attachment) {
    auto& all = *graph_.mutable_initializer();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const auto& tensor) { return tensor.name() == name; });
    onnx::TensorProto& tensor = found == all.end() ? *all.Add() : *found;
    clear_tensor_data(tensor);
    tensor.set_name(name);
    tensor.set_data_type(attachment.data_type);
    tensor.mutable_dims()->Assign(attachment.dims.begin(), attachment.dims.end());
    if (const auto* ref = std::get_if<ExternalRef>(&attachment.data)) {
      write_external_entries(*ref, tensor);
    } else {
      tensor.set_raw_data(std::get<std::string>(attachment.data));
    }
    put_input(name, attachment);
  }

  void put_input(const std::string& name, const Attachment& attachment) {
    auto& inputs = *graph_.mutable_input();
    const auto is_named = [&](const auto& input) { return input.name() == name; };
    if (proto_.ir_version() >= 4) {
      remove(inputs, is_named);
    } else if (std::none_of(inputs.begin(), inputs.end(), is_named)) {
      onnx::ValueInfoProto& input = *inputs.Add();
      input.set_name(name);
      auto& type = *input.mutable_type()->mutable_tensor_type();
      type.set_elem_type(attachment.data_type);
      type.mutable_shape();
      for (const std::int64_t dim : attachment.dims) {
        type.mutable_shape()->add_dim()->set_dim_value(dim);
      }
    }
  }

  template <typename Field, typename Gone>
  static void remove(Field& field, const Gone& gone) {
    field.erase(std::remove_if(field.begin(), field.end(), gone), field.end());
  }

  const GraphFacts& facts_;
  onnx::ModelProto proto_;
  onnx::GraphProto& graph_;
};

TEST(Attach, MakesTheFileThatProtobufMakesOfTheChangedMessage) {
  for (const std::int64_t version : {3, 8}) {
    GraphBuilder b(version);
    const Model model = model_of(full_graph(b));
    const std::vector<Attachment> all = {
        external(model, "open", {2}),
        external(model, "b", {2, 2}),
        external(model, "given", {2}),
        external(model, "twin", {2}),
        {slot_named(model, "a"), "", kFloat, {1}, std::string("1234")},
        {kNoSlot, "extra", kFloat, {}, ExternalRef{"e", 4096, 4, "sha"}}};
    auto edits = edits_of(model, all);
    ASSERT_THAT(edits, IsOk());
    EXPECT_EQ(model.proto().graph().initializer_size(), 1);
    EXPECT_EQ(edited_file(model, *std::move(edits)).value(), ChangedMessage(model, all).bytes());
  }
}

TEST(Attach, MakesThatFileWhenTheGraphWasEmpty) {
  GraphBuilder b;
  const Model model = model_of(b);
  const std::vector<Attachment> all = {{kNoSlot, "extra", kFloat, {1}, ExternalRef{"e", 0, 4, ""}}};
  auto edits = edits_of(model, all);
  ASSERT_THAT(edits, IsOk());
  EXPECT_EQ(edited_file(model, *std::move(edits)).value(), ChangedMessage(model, all).bytes());
}

TEST(Attach, DefersBytesThatComeLater) {
  GraphBuilder b;
  const Model model = model_of(two_weights(b));
  const std::vector<Attachment> all = {
      {slot_named(model, "a"), "", kFloat, {2, 2}, DeferredBytes{7, 16}},
      external(model, "b", {2, 2})};
  auto edits = edits_of(model, all);
  ASSERT_THAT(edits, IsOk());
  const auto pieces = model_segments(model, *std::move(edits));
  ASSERT_THAT(pieces, IsOk());
  ASSERT_EQ(pieces->segments.size(), 3U);
  EXPECT_EQ(pieces->segments[1].from, ModelSegment::From::kDeferred);
  EXPECT_EQ(pieces->segments[1].number, 7U);
  std::string file = pieces->text;
  file.insert(pieces->segments[0].bytes, "0123456789abcdef");
  EXPECT_EQ(file.size(), pieces->bytes);
  onnx::ModelProto read;
  ASSERT_TRUE(read.ParseFromString(file));
  ASSERT_THAT(initializers(read.graph()), ElementsAre("a", "b"));
  EXPECT_EQ(read.graph().initializer(0).raw_data(), "0123456789abcdef");
}

TEST(Attach, GivesTheSameASecondTime) {
  GraphBuilder b;
  const Model model = model_of(two_weights(b));
  const std::string before = model.serialize().value();
  const std::vector<Attachment> all = {external(model, "a", {2, 2})};
  auto first = edits_of(model, all);
  auto second = edits_of(model, all);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(edited_file(model, *std::move(first)).value(),
            edited_file(model, *std::move(second)).value());
  EXPECT_EQ(model.proto().graph().input_size(), 2 + 1);
  EXPECT_EQ(model.serialize().value(), before);
}

TEST(Attach, AnElementTypeFromTheFuturePasses) {
  GraphBuilder b;
  b.node("Neg", {"w"}, {"y"}).output("y", kFloat, {4});
  const Model given = model_of(b);
  const std::vector<Attachment> all = {{0, "", 99, {4}, ExternalRef{"w", 0, 2, ""}}};
  const auto model = attached(given, all);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->external_tensors()[0].data_type, 99);
}

}  // namespace
}  // namespace onnx_external
