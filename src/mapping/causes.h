// Finds one cause that explains all faults of a mapping: one side is quantized, or the weights are
// Constant nodes.
#pragma once

#include <string>
#include <vector>

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// Adds the cause to the refusal, if there is one, and removes the refusal's remedies: with them a
// save would succeed, but the model would keep its old weights.
void add_cause(const MappingTask& task, Refusal& refusal);

// Returns the cause as text, for a graph without slots to fill; empty if there is none.
[[nodiscard]] std::string cause_of(const MappingTask& task);

// Says that a key scales a float8 weight, so that the weight alone has other values; empty if none
// does. `taken`: which keys belong to slots.
[[nodiscard]] std::string scales_text(const MappingTask& task, const std::vector<bool>& taken);

}  // namespace onnx_external
