// Visits the subgraphs of a node (bodies of If, Loop, Scan), and lists the values from outside that
// the subgraphs read.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <string_view>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

// Returns the names of the outside values that the subgraphs of a node read, at any depth. Each
// name occurs once, in the order of first use. The names point into the model. Fails with
// kUnsupported if subgraphs are nested deeper than kMaxGraphDepth.
[[nodiscard]] Result<std::vector<std::string_view>> captures_of(const onnx::NodeProto& node);

// Calls visit(graph) for each subgraph of the node, at any depth. Requires: captures_of() succeeds.
void for_each_subgraph(const onnx::NodeProto& node,
                       const std::function<void(const onnx::GraphProto&)>& visit);

}  // namespace onnx_external
