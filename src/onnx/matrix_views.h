// Follows a weight through nodes that move or convert its elements and compute nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "onnx/view_chain.h"
#include "onnx/weight_graph.h"

namespace onnx_external {

// The elements of a weight as a value has them.
struct WeightView {
  ViewChain chain;
  std::int32_t data_type = 0;
};

// True for operators that follow_view() knows.
[[nodiscard]] bool moves_weights(const onnx::NodeProto& node);

// Returns the outputs of a node, each as a view of the weight. Nullopt if the node is not such a
// view, or if its axes, sizes or indices are not known. Requires: the view is the node's first
// input.
[[nodiscard]] std::optional<std::vector<std::pair<ValueId, WeightView>>> follow_view(
    const WeightGraph& graph, const GraphNodeValues& node, const WeightView& view);

}  // namespace onnx_external
