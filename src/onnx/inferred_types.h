// Infers types and shapes of values for which the graph states none, as in graphs that were saved
// without their initializers.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/value_types.h"

namespace onnx_external {

// Refines the types in `all` by the requirements of ONNX's default operators on their inputs and
// outputs (https://onnx.ai/onnx/operators/), along all paths. Infers only certain facts, and none
// that contradict stated types. Requires: the values of the nodes are indices into `all`. The
// result is complete only if the nodes are in topological order. Linear in the nodes:
// it goes through them a fixed number of times.
void infer_types(std::span<const NodeValues> nodes, std::span<ValueType> all);

// Goes through the nodes once, from inputs to outputs only, and refines the types in `all`. Returns
// the first node that cannot have its inputs, because they contradict its rule. nullptr if there is
// none, or none is certain. Requires as above.
[[nodiscard]] const NodeValues* find_contradiction(std::span<const NodeValues> nodes,
                                                   std::span<ValueType> all);

// Nullopt if the shape has more dimensions than any checkpoint tensor.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
