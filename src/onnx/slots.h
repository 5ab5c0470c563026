// Finds the slots of a graph: every value that a checkpoint tensor can supply, with the facts that
// the graph states about it.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Lists slots in this order: graph inputs, initializers (graph by graph), undefined names by first
// use, Identity outputs (graph by graph). `graphs` comes from list_graphs. Linear in the model.
// Also stores whether find_duplicate_names() would find any; knowing this costs nothing here.
[[nodiscard]] GraphFacts collect_facts(std::span<const GraphNode> graphs, std::int64_t ir_version,
                                       bool* has_duplicates = nullptr);

}  // namespace onnx_external
