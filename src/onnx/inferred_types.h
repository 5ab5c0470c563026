// Infers the types and shapes of values for which the graph states none, as in graphs that were
// saved without their initializers.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/value_types.h"

namespace onnx_external {

// Refines the types in `all` by what ONNX's default operators require of their inputs and outputs
// (https://onnx.ai/onnx/operators/), along all paths. Infers only what is certain, and nothing that
// contradicts stated types. Requires: the values of the nodes are indices into `all`. The result is
// complete only if the nodes are in topological order. Linear in the number of nodes, which are
// visited a fixed number of times.
void infer_types(std::span<const NodeValues> nodes, std::span<ValueType> all);

// Visits the nodes once, from inputs to outputs, and refines the types in `all`. Returns the first
// node whose inputs contradict its operator's rule; nullptr if there is no certain contradiction.
// Requires as above.
[[nodiscard]] const NodeValues* find_contradiction(std::span<const NodeValues> nodes,
                                                   std::span<ValueType> all);

// Returns the stated shape; nullopt if it has more dimensions than any checkpoint tensor.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
