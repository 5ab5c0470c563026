// Infers the types and shapes of values for which the graph states none, as in graphs that were
// saved without their initializers.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/value_types.h"

namespace onnx_external {

// Refines the types in `all` by the requirements of ONNX's default operators on their inputs and
// outputs (https://onnx.ai/onnx/operators/), along all paths. Infers only facts that are certain
// and that do not contradict stated types. The result is complete only if the nodes are in
// topological order. Takes linear time, because nodes are visited a fixed number of times.
// Requires: the values of the nodes are indices into `all`.
void infer_types(std::span<const NodeValues> nodes, std::span<ValueType> all);

// Visits the nodes once, from inputs to outputs, and refines the types in `all`. Returns the first
// node whose inputs contradict the rule of its operator, or nullptr if no contradiction is certain.
// Requires: the values of the nodes are indices into `all`.
[[nodiscard]] const NodeValues* find_contradiction(std::span<const NodeValues> nodes,
                                                   std::span<ValueType> all);

// Returns the stated shape, or nullopt if it has more dimensions than a checkpoint tensor can have.
[[nodiscard]] std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type);

}  // namespace onnx_external
