// If a graph reads the stored parts of quantized weights (codes, scales, ...) instead of float
// weights, lists these parts as the tensors of the checkpoint.
#pragma once

#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {

// Calls list_stored_parts() for the slots of the graph. Must be called before derived tensors are
// added.
void list_parts_for(const GraphFacts& graph, Checkpoint& checkpoint);

}  // namespace onnx_external
