// Finds the slots of a graph, which are the values that a checkpoint tensor can supply, and
// collects the facts that the graph states about them.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Lists slots in this order: graph inputs, initializers (graph by graph), undefined names by first
// use, Identity outputs (graph by graph). `graphs` is the result of list_graphs(). If
// `has_duplicates` is not null, stores in it whether find_duplicate_names() would find duplicates.
// Takes linear time in the size of the model.
[[nodiscard]] GraphFacts collect_facts(std::span<const GraphNode> graphs, std::int64_t ir_version,
                                       bool* has_duplicates = nullptr);

}  // namespace onnx_external
