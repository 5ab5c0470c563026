// Recognizes keys (tensors of a checkpoint) that do not fit any graph, because a training run
// stored something other than whole weights.
#pragma once

#include <span>
#include <string>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Returns text that says what the keys are (empty or flattened tensors from sharded training,
// optimizer state, or factors that torch multiplies, as in pruning and in weight or spectral
// normalization), and what to do with the checkpoint before it is saved. Returns "" for all other
// keys.
[[nodiscard]] std::string unfit_keys(const MappingTask& task);

// If in most of the pairs one dimension differs, by the same factor in all of them, returns text
// that says that the keys are parts of tensors that were split among ranks; otherwise "".
[[nodiscard]] std::string cut_among_ranks(const MappingTask& task, const Aligned& aligned);

}  // namespace onnx_external
