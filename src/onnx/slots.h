// Finds the slots of a graph, that is, all values that a checkpoint tensor can supply, with what
// the graph states about them.
#pragma once

#include <span>

#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// Lists slots in this order: graph inputs, initializers (graph by graph), undefined names by first
// use, Identity outputs (graph by graph). `graphs` was returned by list_graphs. Linear in the size
// of the model. Also stores whether find_duplicate_names() would find any duplicates, because this
// is known at no extra cost here.
[[nodiscard]] GraphFacts collect_facts(std::span<const GraphNode> graphs, std::int64_t ir_version,
                                       bool* has_duplicates = nullptr);

}  // namespace onnx_external
