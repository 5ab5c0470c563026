// Recognizes keys that cannot fill the slots of any graph, because a training stored something
// other than whole weights.
#pragma once

#include <span>
#include <string>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Says what the keys are (empty or flattened tensors of a sharded training, optimizer state, or
// factors that torch multiplies, as in pruning and in weight or spectral normalization), and what
// to do about them first. Returns "" for all other keys.
[[nodiscard]] std::string unfit_keys(const MappingTask& task);

// Says that the keys are parts of tensors that were cut among ranks, if most of the pairs differ by
// the same factor in one dimension each; "" otherwise.
[[nodiscard]] std::string cut_among_ranks(const MappingTask& task, const Aligned& aligned);

}  // namespace onnx_external
