// Infers types and shapes of values that nothing states, as in graphs that were saved without their
// initializers.
#pragma once

#include <span>

#include "onnx/value_types.h"

namespace onnx_external {

// Completes the types with what the operators of ONNX's default domain require of their inputs and
// outputs (https://onnx.ai/onnx/operators/), along all paths. Learns only what is certain, and
// nothing that contradicts what is stated. Requires: the values of the nodes are indices into
// `all`. The result is complete only if the nodes are in topological order. Linear in the nodes:
// it goes through them a fixed number of times.
void infer_types(std::span<const NodeValues> nodes, std::span<ValueType> all);

// Nothing if the shape has more dimensions than that of any checkpoint.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
