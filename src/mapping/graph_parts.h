// Gives a graph that reads quantized weights in parts, as a library stored them, these parts as its
// keys.
#pragma once

#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {

// See list_stored_parts(), for the slots of the graph. Call it before derived tensors are added.
void list_parts_for(const GraphFacts& graph, Checkpoint& checkpoint);

}  // namespace onnx_external
