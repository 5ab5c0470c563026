#include "onnx/external_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "onnx/model_edits.h"
#include "support/edited_model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

Result<Model> load_with(const Entries& entries, std::int32_t type = kFloat,
                        const std::vector<std::int64_t>& dims = {2}) {
  GraphBuilder b;
  b.external("w", type, dims, entries);
  return Model::from_proto(b.model(), "dir");
}

TEST(ExternalData, ReadsLocationOffsetAndLength) {
  const auto model = load_with({{"location", "w.bin"}, {"offset", "64"}, {"length", "8"}});
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->external_tensors().size(), 1U);
  const ExternalTensor& tensor = model->external_tensors()[0];
  EXPECT_EQ(tensor.location, "w.bin");
  EXPECT_EQ(tensor.offset, 64U);
  EXPECT_EQ(tensor.length, 8U);
  EXPECT_EQ(tensor.dims, Shape{2});
}

TEST(ExternalData, ComputesALengthThatIsNotStated) {
  const auto model = load_with({{"location", "w.bin"}});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->external_tensors()[0].length, 8U);
}

TEST(ExternalData, RefusesNumbersThatAreNotPlainDecimal) {
  for (const char* text :
       {"+5", " 5", "5 ", "0x5", "-5", "", "5.0", "18446744073709551621", "9223372036854775808"}) {
    EXPECT_EQ(parse_decimal(text), std::nullopt) << text;
    EXPECT_THAT(load_with({{"location", "w.bin"}, {"offset", text}}),
                FailsWith(ErrorCode::kCorrupt,
                          *text == '\0' ? "initializer 'w': external_data: the key 'offset'"
                                        : "initializer 'w': external_data offset"))
        << text;
  }
  EXPECT_EQ(parse_decimal("9223372036854775807"), 9223372036854775807ULL);
}

TEST(ExternalData, RefusesTwinAndUnknownKeys) {
  EXPECT_THAT(
      load_with({{"location", "a"}, {"location", "b"}}),
      FailsWith(ErrorCode::kCorrupt, "the key 'location' occurs twice with different values"));
  EXPECT_THAT(load_with({{"location", "a"}, {"packed", "/"}}),
              FailsWith(ErrorCode::kCorrupt, "the key 'packed' is unknown"));
}

TEST(ExternalData, AcceptsEntriesThatALoaderReadsAndRemarksThoseThatAnotherRejects) {
  const auto remarks_on = [](const Entries& entries) {
    const auto model = load_with(entries);
    EXPECT_THAT(model, IsOk());
    return model ? model->external_tensors()[0].remarks : DataRemarks();
  };
  const Entries whole{{"location", "a"}, {"length", "8"}};
  const auto with = [&](Entries more) {
    more.insert(more.begin(), whole.begin(), whole.end());
    return more;
  };
  EXPECT_TRUE(remarks_on(whole).empty());
  EXPECT_TRUE(remarks_on({{"location", "a"}}).has(DataRemark::kNoLength));
  EXPECT_TRUE(remarks_on({{"location", "a"}, {"length", "0"}}).has(DataRemark::kZeroLength));
  EXPECT_TRUE(remarks_on(with({{"prepacked_0", "k|0;8;1"}})).has(DataRemark::kPrepacked));
  EXPECT_TRUE(remarks_on(with({{"basepath", "/else"}})).has(DataRemark::kBasepath));
  EXPECT_TRUE(remarks_on(with({{"location", "a"}})).has(DataRemark::kDuplicateKeys));
  EXPECT_TRUE(remarks_on(with({{"checksum", "md5"}})).has(DataRemark::kOtherChecksum));
  EXPECT_TRUE(remarks_on({{"location", "w..bin"}, {"length", "8"}}).has(DataRemark::kDots));
}

TEST(ExternalData, ALengthOfZeroIsRightForATensorWithoutElements) {
  const auto model = load_with({{"location", "a"}, {"length", "0"}}, kFloat, {0});
  ASSERT_THAT(model, IsOk());
  EXPECT_TRUE(model->external_tensors()[0].remarks.empty());
}

TEST(ExternalData, LocationsAreReadInTheirPlainestForm) {
  for (const char* spelled : {"d/w", "./d/w", "d//w", "d/./w", ".//./d///w"}) {
    const auto model = load_with({{"location", spelled}});
    ASSERT_THAT(model, IsOk());
    EXPECT_EQ(model->external_tensors()[0].location, "d/w") << spelled;
  }
}

TEST(ExternalData, DataInsideAndOutsideIsRefused) {
  GraphBuilder b;
  b.external("w", kFloat, {2}, {{"location", "w.bin"}});
  b.model().mutable_graph()->mutable_initializer(0)->set_raw_data("12345678");
  EXPECT_THAT(
      Model::from_proto(b.model(), "dir"),
      FailsWith(ErrorCode::kCorrupt, "'w': it is external, but the model also contains data"));
}

TEST(ExternalData, RefusesAMissingLocation) {
  EXPECT_THAT(load_with({{"offset", "0"}}), FailsWith(ErrorCode::kCorrupt, "no location"));
  EXPECT_THAT(load_with({{"location", ""}}),
              FailsWith(ErrorCode::kCorrupt, "the key 'location' has no value"));
}

TEST(ExternalData, RejectsALengthThatContradictsTypeAndDims) {
  EXPECT_THAT(
      load_with({{"location", "a"}, {"length", "9"}}),
      FailsWith(ErrorCode::kCorrupt, "'w': external_data length is 9, but FLOAT [2] takes 8"));
}

TEST(ExternalData, RefusesARangeThatOverflows) {
  EXPECT_THAT(load_with({{"location", "a"}, {"offset", "9223372036854775807"}}),
              FailsWith(ErrorCode::kCorrupt, "exceeds 2^63-1"));
}

TEST(ExternalData, RefusesStrings) {
  EXPECT_THAT(load_with({{"location", "a"}, {"length", "8"}}, onnx::TensorProto::STRING),
              FailsWith(ErrorCode::kUnsupported, "'w'"));
}

TEST(ExternalData, AnElementTypeFromTheFuturePassesWithItsLength) {
  const auto model = load_with({{"location", "a"}, {"length", "77"}}, 99);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->external_tensors()[0].length, 77U);
  EXPECT_FALSE(load_with({{"location", "a"}}, 99).has_value());
}

TEST(ExternalData, RelocatePointsToTheNewPlace) {
  const auto model = load_with({{"location", "old.bin"}, {"offset", "64"}});
  ASSERT_THAT(model, IsOk());
  ModelEdits edits;
  relocate(*model, 0, ExternalRef{"data/new.bin", 4096, 8, "abc"}, edits);
  const auto again = edited_model(*model, std::move(edits));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->external_tensors()[0].offset, 4096U);
  EXPECT_EQ(again->proto().graph().initializer(0).external_data_size(), 4);
}

TEST(ExternalData, EveryDataFieldIsCleared) {
  onnx::TensorProto tensor;
  tensor.set_raw_data("x");
  tensor.add_float_data(1);
  tensor.add_int32_data(1);
  tensor.add_int64_data(1);
  tensor.add_double_data(1);
  tensor.add_uint64_data(1);
  tensor.add_string_data("x");
  EXPECT_TRUE(has_data(tensor));
  write_external_entries({"w", 0, 4, ""}, tensor);
  EXPECT_EQ(tensor.data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(tensor.external_data_size(), 3);
  clear_tensor_data(tensor);
  EXPECT_FALSE(has_data(tensor));
  EXPECT_EQ(tensor.ByteSizeLong(), 0U);
}

onnx::TensorProto* make_external(onnx::TensorProto* tensor) {
  tensor->set_data_type(kFloat);
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = tensor->add_external_data();
  entry->set_key("location");
  entry->set_value("data.bin");
  return tensor;
}

onnx::AttributeProto* add_attribute(onnx::NodeProto* node, const std::string& name) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  return attribute;
}

// An external tensor in every place that can hold one.
onnx::ModelProto external_everywhere() {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Relu", {"x"}, {"y"});
  auto* graph = b.model().mutable_graph();
  make_external(graph->add_initializer())->set_name("w");
  auto* sparse = graph->add_sparse_initializer();
  make_external(sparse->mutable_values())->set_name("s");
  make_external(sparse->mutable_indices());
  make_external(add_attribute(graph->mutable_node(0), "t")->mutable_t());
  make_external(add_attribute(graph->mutable_node(0), "list")->add_tensors());
  auto* attribute = add_attribute(graph->mutable_node(0), "sparse");
  make_external(attribute->mutable_sparse_tensor()->mutable_values());
  make_external(attribute->add_sparse_tensors()->mutable_indices());
  auto* inner = add_attribute(graph->mutable_node(0), "body")->mutable_g();
  make_external(inner->add_initializer())->set_name("w");
  auto* node = b.model().add_functions()->add_node();
  node->set_name("in a function");
  make_external(add_attribute(node, "t")->mutable_t());
  make_external(add_attribute(node, "body")->mutable_g()->add_initializer())->set_name("f");
  auto* training = b.model().add_training_info();
  make_external(training->mutable_initialization()->add_initializer())->set_name("i");
  make_external(training->mutable_algorithm()->add_initializer())->set_name("a");
  return b.model();
}

TEST(ExternalData, IsListedAnywhereInTheModel) {
  const auto model = Model::from_proto(external_everywhere(), {});
  ASSERT_THAT(model, IsOk());
  std::vector<std::string> found;
  for (const ExternalTensor& tensor : model->external_tensors()) {
    found.push_back(std::to_string(static_cast<int>(tensor.place)) + " " +
                    std::to_string(tensor.graph) + " " + tensor.name);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"0 0 w", "1 0 s", "1 0 s.indices", "2 0 y.t", "2 0 y.list.0",
                                      "2 0 y.sparse", "2 0 y.sparse.0.indices", "0 1 w",
                                      "2 0 in a function.t", "0 2 f", "0 3 i", "0 4 a"}));
}

TEST(ExternalData, BadEntriesAreNamedAnywhereInTheModel) {
  const std::vector<std::pair<int, std::string>> cases{
      {0, "initializer 'w'"}, {1, "sparse initializer 's'"}, {3, "attribute 'y.t'"}};
  for (const auto& [number, where] : cases) {
    onnx::ModelProto model = external_everywhere();
    auto* graph = model.mutable_graph();
    const std::vector<onnx::TensorProto*> tensors{
        graph->mutable_initializer(0), graph->mutable_sparse_initializer(0)->mutable_values(),
        nullptr, graph->mutable_node(0)->mutable_attribute(0)->mutable_t()};
    tensors[static_cast<std::size_t>(number)]->clear_external_data();
    EXPECT_THAT(Model::from_proto(model, {}), FailsWith(ErrorCode::kCorrupt, where));
  }
}

TEST(ExternalData, LeavesFunctionsAndTrainingInfoUnchanged) {
  GraphBuilder b;
  b.input("x", kFloat, {1}).node("Relu", {"x"}, {"y"});
  b.model().add_functions()->add_node()->add_attribute()->mutable_t();
  b.model().add_training_info();
  const auto model = Model::from_proto(b.model(), {});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->proto().SerializeAsString(), b.bytes());
}

}  // namespace
}  // namespace onnx_external
