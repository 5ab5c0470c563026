// Follows a weight through nodes that only move or convert its elements, such as Transpose and
// Cast.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "onnx/view_chain.h"
#include "onnx/weight_graph.h"

namespace onnx_external {

// A view of a weight. It describes how the elements of a value are obtained from those of the
// weight.
struct WeightView {
  ViewChain chain;
  std::int32_t data_type = 0;
};

// Returns whether follow_view() supports the node's operator.
[[nodiscard]] bool moves_weights(const onnx::NodeProto& node);

// Returns the outputs of a node, each as a view of the weight. Returns nullopt if the operator is
// not supported, or if its axes, sizes or indices are not known. Requires: the node's first input
// is the view.
[[nodiscard]] std::optional<std::vector<std::pair<ValueId, WeightView>>> follow_view(
    const WeightGraph& graph, const GraphNodeValues& node, const WeightView& view);

}  // namespace onnx_external
