#include "onnx/function_attributes.h"

#include <google/protobuf/stubs/logging.h>

#include "base/text.h"

namespace onnx_external {
namespace {

// Most attributes hold none, and their messages need not be kept. A schema that has the member
// leaves it unused.
[[maybe_unused]] bool may_hold_tensors(const onnx::AttributeProto& attribute) {
  return attribute.has_t() || attribute.has_g() || attribute.has_sparse_tensor() ||
         attribute.tensors_size() > 0 || attribute.graphs_size() > 0 ||
         attribute.sparse_tensors_size() > 0;
}

// A template, because only a newer schema has the member.
template <typename Function>
Result<std::vector<FunctionAttribute>> attributes_of(const Function& function, int number) {
  std::vector<FunctionAttribute> attributes;
  if constexpr (requires { function.attribute_proto(); }) {
    for (const onnx::AttributeProto& attribute : function.attribute_proto()) {
      attributes.push_back({&attribute, nullptr});
    }
  } else {
    const auto& unknown = function.unknown_fields();
    int index = 0;
    for (int i = 0; i < unknown.field_count(); ++i) {
      const auto& field = unknown.field(i);
      if (field.number() != kAttributeProtoField || field.type() != field.TYPE_LENGTH_DELIMITED) {
        continue;
      }
      const google::protobuf::LogSilencer quiet;
      auto detached = std::make_shared<DetachedAttribute>();
      detached->function = number;
      detached->index = index++;
      if (!detached->proto.ParseFromString(field.length_delimited())) {
        return fail(ErrorCode::kCorrupt,
                    "function " + quote(function.name()) +
                        ": its attribute_proto is not an attribute, or is nested "
                        "too deeply");
      }
      if (may_hold_tensors(detached->proto)) {
        attributes.push_back({&detached->proto, detached});
      }
    }
  }
  return attributes;
}

}  // namespace

Result<std::vector<FunctionAttribute>> function_attributes(const onnx::ModelProto& model,
                                                           int function) {
  return attributes_of(model.functions(function), function);
}

}  // namespace onnx_external
