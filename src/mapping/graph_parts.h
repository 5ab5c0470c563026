// Lists the stored parts of quantized weights (codes, scales, ...) as tensors of the checkpoint, if
// a graph reads these parts instead of float weights.
#pragma once

#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external {

// Calls list_stored_parts() for the slots of the graph. Requires: no derived tensors have been
// added to the checkpoint.
void list_parts_for(const GraphFacts& graph, Checkpoint& checkpoint);

}  // namespace onnx_external
