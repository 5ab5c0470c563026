// Which inputs of the graph are the caller's, as far as anyone can tell.
#pragma once

#include <string_view>

#include "mapping/leftovers.h"

namespace onnx_external {

// "input.1", "onnx::Gather_0", "0": what exporters call an argument, or a value that they computed.
[[nodiscard]] bool is_made_up(std::string_view name);

// Fills the lists of inputs in `leftovers`, and adds those that are weights to `missing`.
// `leftovers` has its lists of keys.
void sort_inputs(const MappingTask& task, Leftovers& leftovers);

}  // namespace onnx_external
