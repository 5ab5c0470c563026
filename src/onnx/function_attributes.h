// Reads default values of the attributes of functions: FunctionProto.attribute_proto, which came
// with onnx 1.13. Protobuf classes made from an older schema keep them as bytes of an unknown
// field.
//
// Source of the field's number: onnx.proto.
#pragma once

#include <onnx/onnx_pb.h>

#include <memory>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr int kAttributeProtoField = 11;  // of FunctionProto

// A message that was parsed from the bytes of an unknown field, so the ModelProto does not own it.
struct DetachedAttribute {
  onnx::AttributeProto proto;
  int function = 0;  // index into ModelProto.functions
  int index = 0;     // among the attributes of the function
};

struct FunctionAttribute {
  const onnx::AttributeProto* proto = nullptr;  // of the model, or of `detached`
  std::shared_ptr<DetachedAttribute> detached;  // null: the classes know the field
};

// Returns the attributes of one function that may hold tensors, in their order. kCorrupt if their
// bytes are not an AttributeProto.
[[nodiscard]] Result<std::vector<FunctionAttribute>> function_attributes(
    const onnx::ModelProto& model, int function);

}  // namespace onnx_external
