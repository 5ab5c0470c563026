// Finds weights whose shapes or element types contradict each other, directly or through the nodes
// that lie between them.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// A value of the main graph that a tensor supplies, and what that tensor is.
struct SuppliedValue {
  std::string_view name;
  std::int32_t elem_type = 0;
  Shape dims;
};

// An input of a node, and the weight that it is or that gave it its shape ("" = there is none).
struct ConflictingInput {
  std::string_view name;
  std::int32_t elem_type = 0;
  std::optional<SymbolicShape> shape;
  std::string_view weight;
};

// The first node of the main graph that cannot have its inputs. Names point into the graph.
struct ShapeConflict {
  const onnx::NodeProto* node = nullptr;
  std::vector<ConflictingInput> inputs;
};

// Infers shapes and types from the inputs of the graph, its initializers and what is supplied, by
// the rules of onnx/operator_rules.h, and never from what the graph states of values in between.
// Nodes of other domains and with subgraphs give values of unknown shape. Subgraphs are not looked
// at: a branch that contradicts itself may never run. Linear in the main graph.
[[nodiscard]] std::optional<ShapeConflict> find_shape_conflict(
    const onnx::GraphProto& graph, std::span<const SuppliedValue> supplied);

}  // namespace onnx_external
