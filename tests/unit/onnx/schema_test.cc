// Every place of a model where a tensor can stand, by the schema that the protobuf classes were
// made from, is known to the scanner of model files, to the list of tensors and to edits.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "onnx/function_attributes.h"
#include "onnx/tensor_list.h"
#include "onnx/wire_scan.h"
#include "support/edited_model.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Path = std::vector<const FieldDescriptor*>;

std::vector<const FieldDescriptor*> message_fields(const Descriptor& type) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() != nullptr) {
      fields.push_back(type.field(i));
    }
  }
  return fields;
}

// The shortest path from a message to each other one.
std::map<const Descriptor*, Path> paths_from(const Descriptor& start) {
  std::map<const Descriptor*, Path> paths{{&start, {}}};
  std::vector<const Descriptor*> order{&start};
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const FieldDescriptor* field : message_fields(*order[i])) {
      Path path = paths[order[i]];
      path.push_back(field);
      if (paths.emplace(field->message_type(), path).second) {
        order.push_back(field->message_type());
      }
    }
  }
  return paths;
}

// For each field of any message of a model through which a tensor can be reached, a path over it.
std::vector<Path> paths_to_tensors() {
  const Descriptor& tensor = *onnx::TensorProto::descriptor();
  const auto from_model = paths_from(*onnx::ModelProto::descriptor());
  std::vector<Path> paths;
  for (const auto& [type, start] : from_model) {
    for (const FieldDescriptor* field : message_fields(*type)) {
      const auto onwards = paths_from(*field->message_type());
      const auto end = onwards.find(&tensor);
      if (end != onwards.end() && type != &tensor) {
        paths.push_back(start);
        paths.back().push_back(field);
        paths.back().insert(paths.back().end(), end->second.begin(), end->second.end());
      }
    }
  }
  return paths;
}

// The message at the end of a path, which is made.
Message& make(Message& message, const Path& path) {
  Message* at = &message;
  for (const FieldDescriptor* field : path) {
    at = field->is_repeated() ? at->GetReflection()->AddMessage(at, field)
                              : at->GetReflection()->MutableMessage(at, field);
  }
  return *at;
}

std::string text_of(const Path& path) {
  std::string text;
  for (const FieldDescriptor* field : path) {
    text += (text.empty() ? "" : " > ") + field->full_name();
  }
  return text;
}

constexpr std::string_view kMark = "the mark";

bool is_listed(const onnx::ModelProto& model) {
  const auto tensors = list_tensors(model);
  return tensors && std::any_of(tensors->begin(), tensors->end(), [](const ListedTensor& tensor) {
           return tensor.proto->raw_data() == kMark;
         });
}

bool is_scanned(const onnx::ModelProto& model) {
  const std::string bytes = model.SerializeAsString();
  const auto scan = scan_model(WireInput(bytes), {});
  return scan && scan->segments.size() == 1 &&
         bytes.substr(scan->segments[0].payload, kMark.size()) == kMark;
}

// The model with `change` in the place of the mark, by the edits of a save.
std::string edited(const Model& model, const std::string& change) {
  const auto& proto = ModelAccess::inline_proto(model, 0);
  onnx::TensorProto tensor = proto;
  tensor.set_raw_data(change);
  ModelEdits edits;
  append_message(tensor, edits.replaced[&proto]);
  return edited_file(model, std::move(edits)).value_or("");
}

// Another number of bytes, so that the lengths of all enclosing messages change.
const std::string kChange(300, 'c');

// An element of one byte for each of the mark, so that the tensor has numbers.
void mark(onnx::TensorProto& tensor) {
  tensor.set_data_type(onnx::TensorProto::UINT8);
  tensor.add_dims(static_cast<std::int64_t>(kMark.size()));
  tensor.set_raw_data(std::string(kMark));
}

// Sets every field that is no message, of the messages that a tensor may stand in.
void fill(Message& message) {
  const auto& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int k = 0; field->is_repeated() && k < reflection.FieldSize(message, field); ++k) {
        fill(*reflection.MutableRepeatedMessage(&message, field, k));
      }
      if (!field->is_repeated() && reflection.HasField(message, field)) {
        fill(*reflection.MutableMessage(&message, field));
      }
    } else if (&type != onnx::TensorProto::descriptor()) {
      // Protobuf's text form sets a field of any type.
      const bool is_text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      const bool is_bool = field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
      const std::string value = field->enum_type() != nullptr ? field->enum_type()->value(0)->name()
                                : is_text                     ? "'" + field->name() + "'"
                                : is_bool                     ? "true"
                                                              : "3";
      for (int k = field->is_repeated() ? 2 : 1; k > 0; --k) {
        EXPECT_TRUE(
            google::protobuf::TextFormat::ParseFieldValueFromString(value, field, &message));
      }
    }
  }
  reflection.MutableUnknownFields(&message)->AddLengthDelimited(1000, "from the future");
}

TEST(ModelSchema, LeadsToNoTensorThatAnEditDoesNotReach) {
  for (const Path& path : paths_to_tensors()) {
    onnx::ModelProto proto;
    proto.mutable_graph();
    auto& tensor = dynamic_cast<onnx::TensorProto&>(make(proto, path));
    mark(tensor);
    fill(proto);
    const auto model = Model::from_proto(proto, {});
    ASSERT_THAT(model, IsOk()) << text_of(path);
    EXPECT_EQ(model->serialize().value(), proto.SerializeAsString()) << text_of(path);
    tensor.set_raw_data(kChange);
    EXPECT_EQ(edited(*model, kChange), proto.SerializeAsString()) << text_of(path);
  }
}

TEST(ModelSchema, LeadsToNoTensorThatIsNotScannedAndListed) {
  const std::vector<Path> paths = paths_to_tensors();
  EXPECT_GE(paths.size(), 18U);
  for (const Path& path : paths) {
    onnx::ModelProto model;
    dynamic_cast<onnx::TensorProto&>(make(model, path)).set_raw_data(std::string(kMark));
    EXPECT_TRUE(is_scanned(model)) << text_of(path);
    EXPECT_TRUE(is_listed(model)) << text_of(path);
  }
}

// The same for what a function's attribute holds, whether or not the classes know that field.
TEST(ModelSchema, LeadsThroughDefaultValuesOfFunctionsToo) {
  for (const FieldDescriptor* field : message_fields(*onnx::AttributeProto::descriptor())) {
    const auto onwards = paths_from(*field->message_type());
    const auto end = onwards.find(onnx::TensorProto::descriptor());
    if (end == onwards.end()) {
      continue;
    }
    Path path{field};
    path.insert(path.end(), end->second.begin(), end->second.end());
    onnx::AttributeProto attribute;
    dynamic_cast<onnx::TensorProto&>(make(attribute, path)).set_raw_data(std::string(kMark));
    onnx::ModelProto model;
    onnx::FunctionProto& function = *model.add_functions();
    function.GetReflection()->MutableUnknownFields(&function)->AddLengthDelimited(
        kAttributeProtoField, attribute.SerializeAsString());
    onnx::ModelProto parsed;
    ASSERT_TRUE(parsed.ParseFromString(model.SerializeAsString()));
    EXPECT_TRUE(is_scanned(parsed)) << text_of(path);
    EXPECT_TRUE(is_listed(parsed)) << text_of(path);
  }
}

// One function has two of them, with another unknown field between.
TEST(ModelSchema, LetsAnEditReachDefaultValuesOfFunctionsToo) {
  const auto model_with = [](const std::string& data) {
    onnx::AttributeProto attribute;
    attribute.set_name("a");
    mark(*attribute.mutable_t());
    onnx::AttributeProto other = attribute;
    attribute.mutable_t()->set_raw_data(data);
    onnx::ModelProto model;
    model.mutable_graph();
    model.add_functions()->set_name("f");
    onnx::FunctionProto& function = *model.add_functions();
    auto& unknown = *function.GetReflection()->MutableUnknownFields(&function);
    unknown.AddLengthDelimited(kAttributeProtoField, attribute.SerializeAsString());
    unknown.AddVarint(1000, 7);
    unknown.AddLengthDelimited(kAttributeProtoField, other.SerializeAsString());
    onnx::ModelProto parsed;
    EXPECT_TRUE(parsed.ParseFromString(model.SerializeAsString()));
    return parsed;
  };
  const auto model = Model::from_proto(model_with(std::string(kMark)), {});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(edited(*model, kChange), model_with(kChange).SerializeAsString());
}

template <typename Function>
constexpr bool kKnowsDefaultValues = requires(Function function) {
  function.attribute_proto();
};

TEST(ModelSchema, RejectsADefaultValueThatIsNotAnAttribute) {
  if (kKnowsDefaultValues<onnx::FunctionProto>) {
    GTEST_SKIP() << "the classes of this onnx parse the field themselves";
  }
  onnx::ModelProto model;
  onnx::FunctionProto& function = *model.add_functions();
  function.set_name("f");
  function.GetReflection()->MutableUnknownFields(&function)->AddLengthDelimited(
      kAttributeProtoField, "\x0a\x7f");
  EXPECT_THAT(list_tensors(model), FailsWith(ErrorCode::kCorrupt, "function 'f'"));
}

}  // namespace
}  // namespace onnx_external
