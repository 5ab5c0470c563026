// Every place of a model where a tensor can stand, by the schema that the protobuf classes were
// made from, is known to the scanner of model files and to the list of tensors.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
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
  return scan && scan->pieces.size() == 1 &&
         bytes.substr(scan->pieces[0].payload, kMark.size()) == kMark;
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

TEST(ModelSchema, RefusesADefaultValueThatIsNoAttribute) {
  onnx::ModelProto model;
  onnx::FunctionProto& function = *model.add_functions();
  function.set_name("f");
  function.GetReflection()->MutableUnknownFields(&function)->AddLengthDelimited(
      kAttributeProtoField, "\x0a\x7f");
  EXPECT_THAT(list_tensors(model), FailsWith(ErrorCode::kCorrupt, "function 'f'"));
}

}  // namespace
}  // namespace onnx_external
