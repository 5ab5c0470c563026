// Walks the subgraphs of a node.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string_view>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// The names that the subgraphs of a node, at any depth, read from outside: each once, in the order
// in which they are read first. They point into the model. kUnsupported past kMaxGraphDepth.
[[nodiscard]] Result<std::vector<std::string_view>> captures_of(const onnx::NodeProto& node);

// Calls visit(graph) for each subgraph of the node, at any depth. Requires: captures_of() succeeds.
void for_each_subgraph(const onnx::NodeProto& node,
                       const std::function<void(const onnx::GraphProto&)>& visit);

}  // namespace onnx_external
