// Decides which inputs of the graph are user inputs, as far as this can be known.
#pragma once

#include <string_view>

#include "mapping/leftovers.h"

namespace onnx_external {

// True for names like "input.1", "onnx::Gather_0" and "0", which exporters invent for arguments and
// for values that they computed.
[[nodiscard]] bool is_made_up(std::string_view name);

// Fills the lists of inputs in `leftovers`, and adds inputs that are weights to `missing`.
// Requires: the lists of keys in `leftovers` are complete.
void sort_inputs(const MappingTask& task, Leftovers& leftovers);

}  // namespace onnx_external
