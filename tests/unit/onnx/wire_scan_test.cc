#include "onnx/wire_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/model_access.h"
#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

// A field of wire type 2.
std::string field(std::uint32_t number, const std::string& content) {
  std::string out;
  append_varint(out, (number << 3U) | 2U);
  append_varint(out, content.size());
  return out + content;
}

// A model whose only initializer has these fields.
std::string model_of(const std::string& tensor) {
  return field(7, field(5, tensor));
}

Result<WireScan> scan(const std::string& bytes, WireFilter filter = {}) {
  return scan_model(WireInput(bytes), filter);
}

void expect_refused(const std::string& bytes, ErrorCode code, const std::string& part) {
  EXPECT_THAT(scan(bytes), FailsWith(code, part));
}

TEST(WireScan, FindsDataFieldsWithoutTheirNeighbours) {
  const std::string bytes = model_of(field(8, "w") + field(9, "abcd") + field(12, "doc"));
  const auto found = scan(bytes);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->tensors.size(), 1U);
  ASSERT_EQ(found->segments.size(), 1U);
  const WireSegment& piece = found->segments[0];
  EXPECT_EQ(bytes.substr(piece.begin, piece.end - piece.begin), field(9, "abcd"));
  EXPECT_EQ(bytes.substr(piece.payload, piece.end - piece.payload), "abcd");
  EXPECT_TRUE(piece.packed);
  ASSERT_EQ(found->messages.size(), 2U);
  EXPECT_EQ(found->messages[1].parent, 0U);
}

TEST(WireScan, NeighbouringSingleValuesAreOnePiece) {
  const std::string one = "\x25" + std::string(4, 'f');  // float_data, fixed32
  const auto found = scan(model_of(one + one + field(8, "w") + one));
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->segments.size(), 2U);
  EXPECT_EQ(found->segments[0].end - found->segments[0].begin, 10U);
  EXPECT_FALSE(found->segments[0].packed);
}

TEST(WireScan, ListsOnlyWhatTheFilterAsksFor) {
  const std::string bytes =
      field(7, field(5, field(9, std::string(10, 'a'))) + field(5, field(9, std::string(20, 'b'))));
  EXPECT_EQ(scan(bytes, {15})->tensors.size(), 1U);
  EXPECT_EQ(scan(bytes, {10, 10})->tensors.size(), 1U);
  EXPECT_EQ(scan(bytes, {21})->messages.size(), 0U);
}

TEST(WireScan, PassesOverMessagesWithoutRoomForATensorThatIsAskedFor) {
  const std::string broken = field(1, field(5, field(5, "\x4a")));  // a node; its tensor ends early
  const std::string bytes = field(7, broken + field(5, field(9, std::string(20, 'b'))));
  EXPECT_THAT(scan(bytes, {1}), FailsWith(ErrorCode::kCorrupt, "ends inside"));
  const auto found = scan(bytes, {15});
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->tensors.size(), 1U);
}

TEST(WireScan, AKnownNumberOfAnotherTypeIsAnUnknownField) {
  const std::string varint_graph = "\x38\x05";  // field 7, a number
  const auto found =
      scan(varint_graph + model_of("\x4d" + std::string(4, 'x')));  // raw_data, fixed
  ASSERT_THAT(found, IsOk());
  EXPECT_TRUE(found->tensors.empty());
}

TEST(WireScan, SkipsGroups) {
  const auto found = scan("\xa3\x06\x0a\x02hi\xa4\x06" + model_of(field(9, "abcd")));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->tensors.size(), 1U);
}

TEST(WireScan, RefusesAFieldPastTheEndOfTheFile) {
  expect_refused("\x3a\x7f", ErrorCode::kCorrupt, "127 bytes, but only 0 are left");
}

TEST(WireScan, RefusesAFieldPastTheEndOfItsMessage) {
  // The file is long enough, the message around it is not.
  expect_refused("\x3a\x04\x2a\x05\x4a\x01" + std::string(20, 'x'), ErrorCode::kCorrupt,
                 "5 bytes, but only 2 are left");
}

TEST(WireScan, RefusesLengthsThatOverflow) {
  expect_refused("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ErrorCode::kCorrupt,
                 "18446744073709551615 bytes");
}

TEST(WireScan, RejectsANumberOfTooManyBytes) {
  expect_refused("\x08" + std::string(11, '\xff'), ErrorCode::kCorrupt, "more than 10 bytes");
}

TEST(WireScan, RefusesANumberThatTheEndCuts) {
  expect_refused("\x08\xff", ErrorCode::kCorrupt, "ends inside a field");
}

TEST(WireScan, RefusesFieldZeroAndUnknownWireTypes) {
  expect_refused(std::string("\x00\x00", 2), ErrorCode::kCorrupt, "byte 1: not the tag");
  expect_refused("\x0e", ErrorCode::kCorrupt, "not the tag");
}

TEST(WireScan, RefusesGroupsThatDoNotMatch) {
  expect_refused("\xa3\x06\xac\x06", ErrorCode::kCorrupt, "no start");
  expect_refused("\xa4\x06", ErrorCode::kCorrupt, "no start");
  expect_refused("\xa3\x06", ErrorCode::kCorrupt, "ends inside");
}

TEST(WireScan, RefusesGroupsNestedTooDeeply) {
  std::string groups;
  for (int i = 0; i < 100'000; ++i) {
    groups += "\xa3\x06";
  }
  expect_refused(groups, ErrorCode::kUnsupported, "nested too deeply");
}

TEST(WireScan, RefusesMessagesNestedTooDeeply) {
  std::string graph;
  for (int i = 0; i < 40; ++i) {
    graph = field(1, field(5, field(6, graph)));  // a node with an attribute with a graph
  }
  expect_refused(field(7, graph), ErrorCode::kUnsupported, "nested too deeply");
}

TEST(WireScan, RefusesATensorThatItsParentHasTwice) {
  const std::string t = field(5, field(9, "abcd"));
  expect_refused(field(7, field(1, field(5, t + t))), ErrorCode::kUnsupported, "twice");
  const std::string values = field(1, field(9, "abcd"));
  expect_refused(field(7, field(15, values + values)), ErrorCode::kUnsupported, "twice");
}

TEST(WireScan, RefusesDataInTooManySegments) {
  std::string tensor;
  for (std::size_t i = 0; i <= kMaxWireSegments; ++i) {
    tensor += field(4, std::string(16, 'f')) + field(12, "");
  }
  expect_refused(model_of(tensor), ErrorCode::kUnsupported, "more than 64 segments");
}

TEST(WireScan, EveryCutOfAModelIsRefusedOrEndsBetweenFields) {
  const std::string bytes = model_of(field(8, "w") + field(9, "abcdefgh"));
  EXPECT_THAT(scan(bytes), IsOk());
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    EXPECT_FALSE(scan(bytes.substr(0, size)).has_value()) << size;
  }
}

// What rewrite() says, as bytes.
std::string apply(const std::string& bytes, const std::vector<WireStep>& steps,
                  const std::string& filling) {
  std::string out;
  for (const WireStep& step : steps) {
    if (step.kind == WireStep::Kind::kCopy) {
      out += bytes.substr(step.from, step.bytes);
    } else if (step.kind == WireStep::Kind::kLength) {
      append_varint(out, step.from);
    } else {
      out += filling;
    }
  }
  return out;
}

TEST(WireRewrite, PutsTheLengthsOfAllEnclosingMessagesRight) {
  // Around the sizes at which a length takes one byte more.
  for (const std::size_t size : {0U, 1U, 100U, 120U, 127U, 128U, 129U, 16'370U, 16'383U, 16'384U}) {
    const auto model = [](const std::string& raw) {
      const std::string attribute = field(1, "value") + field(5, field(8, "w") + raw);
      return field(7, field(2, "main") + field(1, field(5, attribute) + field(2, "out")));
    };
    const std::string before = model(field(9, "12345678")) + field(2, "producer");
    const std::string filling = field(9, std::string(size, 'z'));
    const auto found = scan(before);
    ASSERT_THAT(found, IsOk());
    const WireSegment& piece = found->segments[0];
    const std::vector<WireEdit> edits{
        {found->tensors[0].message, piece.begin, piece.end, filling.size()}};
    const auto steps = rewrite(*found, edits, before.size());
    ASSERT_THAT(steps, IsOk());
    EXPECT_EQ(apply(before, *steps, filling), model(filling) + field(2, "producer"));
  }
}

TEST(WireRewrite, RefusesAModelThatProtobufCouldNotRead) {
  const std::string bytes = model_of(field(9, "abcd"));
  const auto found = scan(bytes);
  const WireSegment& piece = found->segments[0];
  const auto edit = [&](std::uint64_t size) {
    const std::vector<WireEdit> edits{{found->tensors[0].message, piece.begin, piece.end, size}};
    return rewrite(*found, edits, bytes.size());
  };
  // Two lengths of five bytes and two tags around it.
  EXPECT_THAT(edit(kMaxMessageBytes - 12), IsOk());
  EXPECT_THAT(edit(kMaxMessageBytes - 11), FailsWith(ErrorCode::kUnsupported, "2.15 GB"));
}

// --- random models --------------------------------------------------------------------------

class RandomModel {
 public:
  explicit RandomModel(std::uint32_t seed) : random_(seed) {}

  onnx::ModelProto make() {
    onnx::ModelProto model;
    model.set_ir_version(8);
    unknown(model);
    fill(*model.mutable_graph(), 0);
    for (std::uint32_t i = below(3); i > 0; --i) {
      auto* function = model.add_functions();
      unknown(*function);
      node(*function->add_node(), 1);
    }
    if (below(2) == 0) {
      fill(*model.add_training_info()->mutable_algorithm(), 1);
    }
    return model;
  }

 private:
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

  // Of every wire type, at the end of the message.
  template <typename Message>
  void unknown(Message& message) {
    auto* fields = message.GetReflection()->MutableUnknownFields(&message);
    switch (below(5)) {
      case 0:
        fields->AddVarint(1000, below(1000));
        break;
      case 1:
        fields->AddFixed32(1001, below(1000));
        break;
      case 2:
        fields->AddFixed64(1002, below(1000));
        break;
      case 3:
        fields->AddLengthDelimited(1003, std::string(below(3000), 'u'));
        break;
      default:
        fields->AddGroup(1004)->AddLengthDelimited(7, "group");
    }
  }

  void tensor(onnx::TensorProto& tensor) {
    tensor.set_name("t" + std::to_string(count_++));
    const std::uint32_t size = below(4) == 0 ? below(3000) : below(40);
    tensor.add_dims(size);
    switch (below(7)) {
      case 0:
        tensor.set_data_type(onnx::TensorProto::FLOAT);
        tensor.mutable_float_data()->Resize(static_cast<int>(size), 1.5F);
        break;
      case 1:
        tensor.set_data_type(onnx::TensorProto::INT16);
        for (std::uint32_t i = 0; i < size; ++i) {
          tensor.add_int32_data(static_cast<std::int32_t>(below(1U << 16U)) - (1 << 15));
        }
        break;
      case 2:
        tensor.set_data_type(onnx::TensorProto::INT64);
        for (std::uint32_t i = 0; i < size; ++i) {
          tensor.add_int64_data(static_cast<std::int64_t>(random_()) * 7919 - (1LL << 50));
        }
        break;
      case 3:
        tensor.set_data_type(onnx::TensorProto::STRING);
        tensor.add_string_data(std::string(size, 's'));
        break;
      case 4:
        tensor.set_data_type(onnx::TensorProto::DOUBLE);
        tensor.mutable_double_data()->Resize(static_cast<int>(size), 0.25);
        break;
      default:
        tensor.set_data_type(onnx::TensorProto::UINT8);
        tensor.set_raw_data(std::string(size, static_cast<char>('a' + below(26))));
    }
    unknown(tensor);
  }

  void node(onnx::NodeProto& node, int depth) {
    node.set_op_type("Op");
    node.add_output("n" + std::to_string(count_++));
    for (std::uint32_t i = below(3); i > 0; --i) {
      auto& attribute = *node.add_attribute();
      attribute.set_name("a");
      unknown(attribute);
      switch (below(6)) {
        case 0:
          tensor(*attribute.mutable_t());
          break;
        case 1:
          tensor(*attribute.add_tensors());
          tensor(*attribute.add_tensors());
          break;
        case 2:
          sparse(*attribute.mutable_sparse_tensor());
          break;
        case 3:
          sparse(*attribute.add_sparse_tensors());
          break;
        default:
          if (depth < 4) {
            fill(below(2) == 0 ? *attribute.mutable_g() : *attribute.add_graphs(), depth + 1);
          }
      }
    }
    unknown(node);
  }

  void sparse(onnx::SparseTensorProto& sparse) {
    tensor(*sparse.mutable_values());
    tensor(*sparse.mutable_indices());
    unknown(sparse);
  }

  void fill(onnx::GraphProto& graph, int depth) {
    for (std::uint32_t i = below(4); i > 0; --i) {
      tensor(*graph.add_initializer());
    }
    if (below(3) == 0) {
      sparse(*graph.add_sparse_initializer());
    }
    for (std::uint32_t i = below(3); i > 0; --i) {
      node(*graph.add_node(), depth);
    }
    unknown(graph);
  }

  std::mt19937 random_;
  int count_ = 0;
};

// The message as protobuf writes it, whatever order its fields had.
std::string canonical(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  return model.SerializeAsString();
}

TEST(WireProperty, WhatIsLoadedAndWrittenIsTheModel) {
  const TempDir dir;
  std::size_t cut = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const std::string bytes = RandomModel(seed).make().SerializeAsString();
    const auto model = Model::load(dir.write("model.onnx", bytes));
    ASSERT_THAT(model, IsOk());
    const auto written = model->serialize();
    ASSERT_THAT(written, IsOk());
    ASSERT_EQ(canonical(*written), bytes) << "seed " << seed;
    for (std::size_t i = 0; i < model->inline_tensors().size(); ++i) {
      cut += ModelAccess::cuts(*model).find(ModelAccess::inline_proto(*model, i)).has_value() ? 1U
                                                                                              : 0U;
    }
  }
  EXPECT_GT(cut, 100U);
}

TEST(WireProperty, RandomDamageNeitherCrashesNorHangs) {
  const TempDir dir;
  std::mt19937 random(7);
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::string bytes = RandomModel(seed).make().SerializeAsString();
    for (int i = 0; i < 3; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto model = Model::load(dir.write("model.onnx", bytes));
    if (model) {
      (void)model->serialize();
    }
  }
}

}  // namespace
}  // namespace onnx_external
