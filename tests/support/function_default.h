// Sets default values of function attributes in models for tests. The protobuf classes may lack the
// field for these.
#pragma once

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include <string>

#include "onnx/function_attributes.h"

namespace onnx_external {

// This is a template because only a newer schema has the member.
template <typename Function>
void add_attribute_default(Function& function, const onnx::AttributeProto& proto) {
  if constexpr (requires { function.add_attribute_proto(); }) {
    *function.add_attribute_proto() = proto;
  } else {
    function.GetReflection()->MutableUnknownFields(&function)->AddLengthDelimited(
        kAttributeProtoField, proto.SerializeAsString());
  }
}

// Adds a function "f" of the domain "d" to the model. Its attribute has the default `value`.
inline onnx::FunctionProto& add_function_with_default(onnx::ModelProto& model,
                                                      const std::string& attribute,
                                                      const onnx::TensorProto& value) {
  onnx::AttributeProto proto;
  proto.set_name(attribute);
  proto.set_type(onnx::AttributeProto::TENSOR);
  *proto.mutable_t() = value;
  onnx::FunctionProto& function = *model.add_functions();
  function.set_domain("d");
  function.set_name("f");
  add_attribute_default(function, proto);
  return function;
}

}  // namespace onnx_external
