// What explains a refusal as a whole: one side is quantized, or the weights are Constant nodes.
#pragma once

#include <string>

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// Adds the cause, if one is known. The remedies of the refusal then go: with them a save would
// succeed and the model would keep its old weights.
void add_cause(const MappingTask& task, Refusal& refusal);

// The same as text, for a graph that has nothing to fill; empty if none is known.
[[nodiscard]] std::string cause_of(const MappingTask& task);

}  // namespace onnx_external
