// Recognizes keys (tensors of a checkpoint) that match no graph, because a training run stored
// something other than complete weights.
#pragma once

#include <span>
#include <string>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Explains what the keys are and how to convert the checkpoint. Recognized are empty or flattened
// tensors from sharded training, optimizer state, and factors from which torch computes a weight,
// as in pruning and in weight or spectral normalization. Returns "" for all other keys.
[[nodiscard]] std::string unfit_keys(const MappingTask& task);

// Recognizes keys that are parts of tensors that were split among ranks. In most pairs with such
// keys, one dimension differs by the same factor. Returns an explanation, or "" for other keys.
[[nodiscard]] std::string cut_among_ranks(const MappingTask& task, const Aligned& aligned);

}  // namespace onnx_external
