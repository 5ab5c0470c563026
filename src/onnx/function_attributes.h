// Reads the default values of function attributes: FunctionProto.attribute_proto, which onnx 1.13
// introduced. Protobuf classes generated from an older schema keep them as the bytes of an unknown
// field.
//
// Source of the field number: onnx.proto.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr int kAttributeProtoField = 11;  // field number in FunctionProto

// A message that was parsed from the bytes of an unknown field. It is therefore not owned by the
// ModelProto.
struct DetachedAttribute {
  onnx::AttributeProto proto;
  int function = 0;  // index into ModelProto.functions
  int index = 0;     // index among the attributes of the function
};

struct FunctionAttribute {
  const onnx::AttributeProto* proto = nullptr;  // belongs to the model or to `detached`
  std::shared_ptr<DetachedAttribute> detached;  // null if the protobuf classes know the field
};

// Returns the attributes of a function that may hold tensors, in order. Fails with kCorrupt if the
// bytes of an attribute are not an AttributeProto.
[[nodiscard]] Result<std::vector<FunctionAttribute>> function_attributes(
    const onnx::ModelProto& model, int function);

}  // namespace onnx_external
