// Nodes whose values follow from initializers alone.
#pragma once

#include <vector>

#include "cut/value_graph.h"

namespace onnx_external {

// By NodeId: true for operators of ONNX itself that read initializers and values of such nodes
// only, and give the same result each time. Nodes with subgraphs do not count.
[[nodiscard]] std::vector<bool> find_constant_nodes(const ValueGraph& graph);

}  // namespace onnx_external
