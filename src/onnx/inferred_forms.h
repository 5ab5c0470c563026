// What a node that reads a value tells of its type and shape, where nothing states them: graphs
// that were saved without their initializers.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "onnx_external/model.h"

namespace onnx_external {

struct InferredForm {
  std::int32_t elem_type = 0;          // 0 = the node does not tell
  std::optional<SymbolicShape> shape;  // with the dimensions that the node tells
  std::optional<SymbolicShape> bound;  // the value must broadcast to this shape
};

// The shape and the type of a value of the graph; nothing where they are not stated.
using FormLookup = std::function<const onnx::TypeProto*(const std::string& name)>;

// By the rules of the operators of ONNX's default domain (https://onnx.ai/onnx/operators/).
[[nodiscard]] InferredForm infer_input(const onnx::NodeProto& node, int input,
                                       const FormLookup& lookup);

// True when the output has the element type of that input.
[[nodiscard]] bool keeps_type(const onnx::NodeProto& node, int input);

// Nothing when the shape has more dimensions than any checkpoint's.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
