// Finds a single cause that explains all faults of a failed mapping, for example that the graph or
// the checkpoint is quantized, or that the graph has its weights in Constant nodes.
#pragma once

#include <string>
#include <vector>

#include "mapping/advice.h"
#include "mapping/task.h"

namespace onnx_external {

// If there is such a cause, adds it to the error and removes the remedies, because a save with
// these options would succeed, but the model would keep its old weights.
void add_cause(const MappingTask& task, Refusal& refusal);

// Returns the cause as text, for a graph without slots to fill, or "" if there is none.
[[nodiscard]] std::string cause_of(const MappingTask& task);

// Reports a key that is the scale of a float8 weight, because the weight has wrong values without
// its scale. Returns "" if there is none. `taken` states for each key whether it belongs to a slot,
// and `weights` whether it may be such a weight (by default, all keys).
[[nodiscard]] std::string scales_text(const MappingTask& task, const std::vector<bool>& taken);
[[nodiscard]] std::string scales_text(const MappingTask& task, const std::vector<bool>& taken,
                                      const std::vector<bool>& weights);

}  // namespace onnx_external
