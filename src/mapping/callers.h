// Which inputs of the graph are the caller's, as far as anyone can tell.
#pragma once

#include "mapping/leftovers.h"

namespace onnx_external {

// Fills the lists of inputs in `leftovers`, and adds those that are weights to `missing`.
// `leftovers` has its lists of keys.
void sort_inputs(const MappingTask& task, Leftovers& leftovers);

}  // namespace onnx_external
