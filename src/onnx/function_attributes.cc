#include "onnx/function_attributes.h"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <utility>

#include "base/text.h"

namespace onnx_external {
namespace {

// Templates, because only a newer schema has the member.
template <typename Function>
void add_known(const Function& function, std::vector<FunctionAttribute>& attributes) {
  if constexpr (requires { function.attribute_proto(); }) {
    for (const onnx::AttributeProto& attribute : function.attribute_proto()) {
      attributes.push_back({&attribute, nullptr});
    }
  }
}

// Of most there is no need to keep the message.
bool may_hold_tensors(const onnx::AttributeProto& attribute) {
  return attribute.has_t() || attribute.has_g() || attribute.has_sparse_tensor() ||
         attribute.tensors_size() > 0 || attribute.graphs_size() > 0 ||
         attribute.sparse_tensors_size() > 0;
}

}  // namespace

Result<std::vector<FunctionAttribute>> function_attributes(const onnx::ModelProto& model,
                                                           int function) {
  const onnx::FunctionProto& proto = model.functions(function);
  std::vector<FunctionAttribute> attributes;
  add_known(proto, attributes);
  const auto& unknown = proto.GetReflection()->GetUnknownFields(proto);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const google::protobuf::UnknownField& field = unknown.field(i);
    if (field.number() != kAttributeProtoField ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    const google::protobuf::LogSilencer quiet;
    auto loose = std::make_shared<LooseAttribute>();
    if (!loose->proto.ParseFromString(field.length_delimited())) {
      return fail(ErrorCode::kCorrupt, "function " + quote(proto.name()) +
                                           ": its attribute_proto is no attribute, or is nested "
                                           "too deeply");
    }
    if (!may_hold_tensors(loose->proto)) {
      continue;
    }
    loose->function = function;
    loose->field = i;
    attributes.push_back({&loose->proto, loose});
  }
  return attributes;
}

}  // namespace onnx_external
