// Finds weights whose shapes or element types contradict each other, either directly or through the
// nodes between them.
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

// A value of the main graph that a tensor will supply, with the type and shape of that tensor.
struct SuppliedValue {
  std::string_view name;
  std::int32_t elem_type = 0;
  Shape dims;
};

// An input of a node. `weight` is the weight that is this input, or from which the shape of the
// input was inferred ("" if there is none).
struct ConflictingInput {
  std::string_view name;
  std::int32_t elem_type = 0;
  std::optional<SymbolicShape> shape;
  std::string_view weight;
};

// The first node of the main graph whose inputs contradict its operator. Names point into the
// graph.
struct ShapeConflict {
  const onnx::NodeProto* node = nullptr;
  std::vector<ConflictingInput> inputs;
};

// Returns the first conflict, if there is one. Shapes and types are inferred from the inputs of the
// graph, its initializers and the supplied values, by the rules of onnx/operator_rules.h. Types
// that the graph states for intermediate values are ignored. Nodes of other domains and nodes with
// subgraphs produce values of unknown shape. Subgraphs are not examined, because a branch that
// contradicts itself may never run. Takes linear time in the size of the main graph.
[[nodiscard]] std::optional<ShapeConflict> find_shape_conflict(
    const onnx::GraphProto& graph, std::span<const SuppliedValue> supplied);

}  // namespace onnx_external
