#include "onnx/inline_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "onnx/model_access.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/inline_bytes.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

onnx::TensorProto tensor_of(std::int32_t type, std::int64_t size) {
  onnx::TensorProto tensor;
  tensor.set_name("w");
  tensor.set_data_type(type);
  tensor.add_dims(size);
  return tensor;
}

// A model with this initializer, in a file; the tensor's fields stand as `wire` says.
class InlineData : public testing::Test {
 protected:
  Result<Model> load(const std::string& wire) {
    std::string graph = "\x2a";  // initializer
    append_varint(graph, wire.size());
    std::string model = "\x3a";  // graph
    append_varint(model, graph.size() + wire.size());
    return Model::load(dir_.write("model.onnx", model + graph + wire));
  }

  Result<std::string> bytes_in(const std::string& wire) {
    const auto model = load(wire);
    return model ? inline_bytes(model->proto().graph().initializer(0), ModelAccess::cuts(*model))
                 : fail(model.error());
  }

  const TempDir dir_;
};

// Long ones are left in the file, short ones are read into the model: the same bytes.
TEST_F(InlineData, EveryTypedFieldBecomesRawBytes) {
  struct Case {
    std::int32_t type;
    void (*add)(onnx::TensorProto&, int);
    std::string (*raw)(int);
  };
  const std::vector<Case> cases{
      {onnx::TensorProto::FLOAT,
       [](auto& t, int i) { t.add_float_data(static_cast<float>(i) / 3); },
       [](int i) { return bytes_of<float>({static_cast<float>(i) / 3}); }},
      {onnx::TensorProto::DOUBLE, [](auto& t, int i) { t.add_double_data(i / 7.0); },
       [](int i) { return bytes_of<double>({i / 7.0}); }},
      {onnx::TensorProto::COMPLEX64,
       [](auto& t, int i) {
         t.add_float_data(static_cast<float>(i));
         t.add_float_data(static_cast<float>(-i));
       },
       [](int i) {
         return bytes_of<float>({static_cast<float>(i), static_cast<float>(-i)});
       }},
      {onnx::TensorProto::INT64, [](auto& t, int i) { t.add_int64_data(i - 300); },
       [](int i) { return bytes_of<std::int64_t>({i - 300}); }},
      {onnx::TensorProto::UINT64, [](auto& t, int i) { t.add_uint64_data(~0ULL - unsigned(i)); },
       [](int i) { return bytes_of<std::uint64_t>({~0ULL - unsigned(i)}); }},
      {onnx::TensorProto::UINT32, [](auto& t, int i) { t.add_uint64_data(~0U - unsigned(i)); },
       [](int i) { return bytes_of<std::uint32_t>({~0U - unsigned(i)}); }},
      {onnx::TensorProto::INT32, [](auto& t, int i) { t.add_int32_data(i - 300); },
       [](int i) { return bytes_of<std::int32_t>({i - 300}); }},
      {onnx::TensorProto::INT16, [](auto& t, int i) { t.add_int32_data(i - 300); },
       [](int i) { return bytes_of<std::int16_t>({static_cast<std::int16_t>(i - 300)}); }},
      {onnx::TensorProto::BFLOAT16, [](auto& t, int i) { t.add_int32_data(0x3f80 + i); },
       [](int i) { return bytes_of<std::uint16_t>({static_cast<std::uint16_t>(0x3f80 + i)}); }},
      {onnx::TensorProto::INT8, [](auto& t, int i) { t.add_int32_data(i % 256 - 128); },
       [](int i) { return bytes_of<std::int8_t>({static_cast<std::int8_t>(i % 256 - 128)}); }},
      {onnx::TensorProto::BOOL, [](auto& t, int i) { t.add_int32_data(i % 2); },
       [](int i) { return bytes_of<std::uint8_t>({static_cast<std::uint8_t>(i % 2)}); }},
      {17 /* FLOAT8E4M3FN */, [](auto& t, int i) { t.add_int32_data(i % 256); },
       [](int i) { return bytes_of<std::uint8_t>({static_cast<std::uint8_t>(i % 256)}); }},
  };
  for (const Case& each : cases) {
    for (const int count : {3, 700}) {
      onnx::TensorProto tensor = tensor_of(each.type, count);
      std::string raw;
      for (int i = 0; i < count; ++i) {
        each.add(tensor, i);
        raw += each.raw(i);
      }
      const auto found = bytes_in(tensor.SerializeAsString());
      ASSERT_THAT(found, IsOk());
      EXPECT_EQ(*found, raw) << each.type << ", " << count;
      EXPECT_EQ(*inline_bytes(tensor, CutTensors()), raw) << each.type << ", " << count;
    }
  }
}

TEST_F(InlineData, ANumberHoldsTwoValuesOfFourBits) {
  constexpr std::int32_t kInt4 = 22;
  onnx::TensorProto tensor = tensor_of(kInt4, 1999);
  for (int i = 0; i < 1000; ++i) {
    tensor.add_int32_data(i % 256);
  }
  const auto found = bytes_in(tensor.SerializeAsString());
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->size(), 1000U);
  EXPECT_EQ((*found)[255], '\xff');
}

std::string header(std::int32_t type, std::int64_t size) {
  return tensor_of(type, size).SerializeAsString();
}

TEST_F(InlineData, SingleValuesAndTwinFieldsAreJoinedAsProtobufDoes) {
  std::string wire = header(kFloat, 400);
  std::string raw;
  for (int i = 0; i < 200; ++i) {
    const std::string value = bytes_of<float>({static_cast<float>(i)});
    wire += "\x25" + value;
    raw += value;
  }
  const std::string rest = bytes_of(std::vector<float>(200, 2.5F));
  wire += "\x22\xa0\x06" + rest;  // packed, 800 bytes
  EXPECT_EQ(*bytes_in(wire), raw + rest);
}

TEST_F(InlineData, SingleNumbersAreRead) {
  std::string wire = header(kInt64, 400);
  for (int i = 0; i < 400; ++i) {
    wire += "\x38";  // int64_data
    append_varint(wire, static_cast<std::uint64_t>(i) * 1000);
  }
  const auto found = bytes_in(wire);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->substr(399 * 8), bytes_of<std::int64_t>({399'000}));
}

TEST_F(InlineData, TheLastRawDataCounts) {
  std::string wire = header(onnx::TensorProto::UINT8, 600);
  for (const char c : {'a', 'b'}) {
    append_raw_data_header(wire, 600);
    wire += std::string(600, c);
  }
  EXPECT_EQ(*bytes_in(wire), std::string(600, 'b'));
}

TEST_F(InlineData, RawDataCountsBeforeTypedData) {
  onnx::TensorProto tensor = tensor_of(kFloat, 200);
  tensor.set_raw_data(std::string(800, 'r'));
  tensor.mutable_float_data()->Resize(200, 1.0F);
  EXPECT_EQ(*bytes_in(tensor.SerializeAsString()), std::string(800, 'r'));
}

TEST_F(InlineData, OnlyOneRunOfPlainBytesIsARange) {
  const auto range_in = [&](const onnx::TensorProto& tensor) {
    const auto model = load(tensor.SerializeAsString());
    return inline_range(model->proto().graph().initializer(0), ModelAccess::cuts(*model))
        .has_value();
  };
  onnx::TensorProto floats = tensor_of(kFloat, 200);
  floats.mutable_float_data()->Resize(200, 1.0F);
  EXPECT_TRUE(range_in(floats));
  onnx::TensorProto raw = tensor_of(kFloat, 200);
  raw.set_raw_data(std::string(800, 'r'));
  EXPECT_TRUE(range_in(raw));
  onnx::TensorProto numbers = tensor_of(onnx::TensorProto::UINT8, 600);
  numbers.mutable_int32_data()->Resize(600, 1);
  EXPECT_FALSE(range_in(numbers));
  onnx::TensorProto small = tensor_of(kFloat, 1);
  small.add_float_data(1);
  EXPECT_FALSE(range_in(small));
}

TEST_F(InlineData, RefusesAnotherNumberOfBytesThanTheDimsSay) {
  onnx::TensorProto raw = tensor_of(kFloat, 200);
  raw.set_raw_data(std::string(796, 'r'));
  EXPECT_THAT(bytes_in(raw.SerializeAsString()),
              FailsWith(ErrorCode::kCorrupt, "contains 796 bytes"));
  onnx::TensorProto numbers = tensor_of(onnx::TensorProto::UINT8, 601);
  numbers.mutable_int32_data()->Resize(600, 1);
  EXPECT_THAT(bytes_in(numbers.SerializeAsString()), FailsWith(ErrorCode::kCorrupt, "fewer"));
  numbers.mutable_int32_data()->Resize(602, 1);
  EXPECT_THAT(bytes_in(numbers.SerializeAsString()), FailsWith(ErrorCode::kCorrupt, "more"));
}

TEST_F(InlineData, DimsThatLieTakeNoMemory) {
  onnx::TensorProto numbers = tensor_of(onnx::TensorProto::UINT8, std::int64_t{1} << 50);
  numbers.mutable_int32_data()->Resize(600, 1);
  EXPECT_THAT(bytes_in(numbers.SerializeAsString()), FailsWith(ErrorCode::kCorrupt, "fewer"));
}

TEST_F(InlineData, RefusesStringsAndUnknownTypes) {
  onnx::TensorProto strings = tensor_of(onnx::TensorProto::STRING, 1);
  strings.add_string_data(std::string(1000, 's'));
  EXPECT_THAT(inline_bytes(strings, CutTensors()), FailsWith(ErrorCode::kUnsupported, ""));
}

TEST_F(InlineData, WhatLooksLikeAPlaceholderIsData) {
  const Placeholders placeholders;
  onnx::TensorProto tensor = tensor_of(onnx::TensorProto::UINT8, Placeholders::kBytes);
  tensor.set_raw_data(placeholders.text(0));
  const auto found = bytes_in(tensor.SerializeAsString());
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(*found, tensor.raw_data());
}

TEST_F(InlineData, AModelListsWhatItHolds) {
  GraphBuilder b;
  b.initializer("w", kFloat, {200}, std::string(800, 'w'));
  b.initializer("small", kFloat, {1}, "1234");
  b.initializer("none", kFloat, {0}, "");
  b.initializer("open", kFloat, {2}, "");
  b.node("Constant", {}, {"c"});
  auto* graph = b.model().mutable_graph();
  auto* attribute = graph->mutable_node(0)->add_attribute();
  attribute->set_name("value");
  *attribute->mutable_t() = tensor_of(kFloat, 1);
  attribute->mutable_t()->add_float_data(1);
  auto* strings = graph->add_initializer();
  strings->set_name("strings");
  strings->set_data_type(onnx::TensorProto::STRING);
  strings->add_string_data("text");
  const auto model = Model::load(dir_.write("model.onnx", b.bytes()));
  ASSERT_THAT(model, IsOk());
  ASSERT_EQ(model->inline_tensors().size(), 3U);
  EXPECT_EQ(model->inline_tensors()[0].name, "w");
  EXPECT_EQ(model->inline_tensors()[0].length, 800U);
  EXPECT_EQ(model->inline_tensors()[1].name, "small");
  EXPECT_EQ(model->inline_tensors()[2].name, "c.value");
  EXPECT_EQ(model->inline_tensors()[2].value, "c");
  EXPECT_EQ(model->inline_tensors()[2].place, TensorPlace::kAttribute);
  EXPECT_LT(model->proto().ByteSizeLong(), 500U);
}

}  // namespace
}  // namespace onnx_external
