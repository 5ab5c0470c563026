#include "onnx/external_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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
                FailsWith(ErrorCode::kCorrupt, "initializer 'w': external_data offset"))
        << text;
  }
  EXPECT_EQ(parse_decimal("9223372036854775807"), 9223372036854775807ULL);
}

TEST(ExternalData, RefusesTwinAndUnknownKeys) {
  EXPECT_THAT(load_with({{"location", "a"}, {"location", "b"}}),
              FailsWith(ErrorCode::kCorrupt, "'location' twice"));
  EXPECT_THAT(load_with({{"location", "a"}, {"basepath", "/"}}),
              FailsWith(ErrorCode::kCorrupt, "unknown key 'basepath'"));
}

TEST(ExternalData, RefusesAMissingLocation) {
  EXPECT_THAT(load_with({{"offset", "0"}}), FailsWith(ErrorCode::kCorrupt, "no location"));
  EXPECT_THAT(load_with({{"location", ""}}), FailsWith(ErrorCode::kCorrupt, "no location"));
}

TEST(ExternalData, RefusesALengthThatTypeAndDimsDeny) {
  EXPECT_THAT(
      load_with({{"location", "a"}, {"length", "9"}}),
      FailsWith(ErrorCode::kCorrupt, "'w': external_data length is 9, but FLOAT [2] takes 8"));
}

TEST(ExternalData, RefusesARangeThatOverflows) {
  EXPECT_THAT(load_with({{"location", "a"}, {"offset", "9223372036854775807"}}),
              FailsWith(ErrorCode::kCorrupt, "passes 2^63-1"));
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

TEST(ExternalData, RefusesAttributeTensorsInExternalFiles) {
  GraphBuilder b;
  b.node("Constant", {}, {"c"});
  auto* attribute = b.model().mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("value");
  attribute->mutable_t()->set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_THAT(Model::from_proto(b.model(), {}),
              FailsWith(ErrorCode::kUnsupported, "attribute 'value'"));
}

TEST(ExternalData, RelocatePointsToTheNewPlace) {
  auto model = load_with({{"location", "old.bin"}, {"offset", "64"}});
  ASSERT_THAT(model, IsOk());
  model->relocate(0, {"data/new.bin", 4096, 8, "abc"});
  EXPECT_EQ(model->external_tensors()[0].location, "data/new.bin");
  const auto again = Model::from_proto(model->proto(), {});
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->external_tensors()[0].offset, 4096U);
  EXPECT_EQ(model->proto().graph().initializer(0).external_data_size(), 4);
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

TEST(ExternalData, RefusesExternalTensorsWhereverTheyWouldDangle) {
  constexpr auto kExternal = onnx::TensorProto::EXTERNAL;
  using Breaks = void (*)(onnx::ModelProto&);
  const std::vector<std::pair<Breaks, std::string>> cases{
      {[](onnx::ModelProto& m) {
         auto* node = m.mutable_graph()->mutable_node(0);
         node->add_attribute()->add_sparse_tensors()->mutable_values()->set_data_location(
             kExternal);
       },
       "attribute"},
      {[](onnx::ModelProto& m) {
         auto* node = m.mutable_graph()->mutable_node(0);
         node->add_attribute()->mutable_sparse_tensor()->mutable_indices()->set_data_location(
             kExternal);
       },
       "attribute"},
      {[](onnx::ModelProto& m) {
         auto* node = m.add_functions()->add_node();
         node->add_attribute()->mutable_t()->set_data_location(kExternal);
       },
       "function"},
      {[](onnx::ModelProto& m) {
         auto* body = m.add_functions()->add_node()->add_attribute()->mutable_g();
         body->add_initializer()->set_data_location(kExternal);
       },
       "function"},
      {[](onnx::ModelProto& m) {
         auto* graph = m.add_training_info()->mutable_initialization();
         graph->add_initializer()->set_data_location(kExternal);
       },
       "training_info"},
      {[](onnx::ModelProto& m) {
         auto* graph = m.add_training_info()->mutable_algorithm();
         graph->add_sparse_initializer()->mutable_values()->set_data_location(kExternal);
       },
       "training_info"},
  };
  for (const auto& [breaks, where] : cases) {
    GraphBuilder b;
    b.input("x", kFloat, {1}).node("Relu", {"x"}, {"y"});
    breaks(b.model());
    EXPECT_THAT(Model::from_proto(b.model(), {}), FailsWith(ErrorCode::kUnsupported, where));
  }
}

TEST(ExternalData, LeavesFunctionsAndTrainingInfoAsTheyAre) {
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
