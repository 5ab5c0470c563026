// Collects facts about a graph from its nodes: its constants, and the modules to which the nodes
// belong.
#pragma once

#include <span>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Returns the constants for GraphFacts::constants, graph by graph in the order of the nodes.
[[nodiscard]] std::vector<ConstantTensor> list_constants(std::span<const GraphNode> graphs);

// Returns the module names for GraphFacts::modules.
[[nodiscard]] std::vector<std::string> list_modules(std::span<const GraphNode> graphs);

}  // namespace onnx_external
