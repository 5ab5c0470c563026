// Lists the main graph of a model and all its subgraphs.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

struct GraphNode {
  const onnx::GraphProto* graph = nullptr;
  std::uint32_t parent = 0;  // index of the enclosing graph; 0 for the main graph itself
};

// Returns the graphs depth first, in the order of nodes and attributes. The first is the main
// graph, and each graph comes after the graph that encloses it. Functions are left out, because
// their bodies cannot use outer names. Fails with kUnsupported beyond kMaxGraphDepth. The pointers
// are valid as long as the model.
[[nodiscard]] Result<std::vector<GraphNode>> list_graphs(const onnx::GraphProto& main);

// Returns whether the node's operator belongs to the default ONNX domain.
[[nodiscard]] inline bool is_default_domain(const onnx::NodeProto& node) {
  return node.domain().empty() || node.domain() == "ai.onnx";
}

}  // namespace onnx_external
