// Recognizes keys that cannot fill the slots of any graph, because a training stored something
// other than whole weights.
#pragma once

#include <span>
#include <string>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Says what the keys are and what to do first: empty or flattened tensors of a sharded training, an
// optimizer's state, or factors that torch multiplies (pruning, weight and spectral normalization).
// "" for all other keys.
[[nodiscard]] std::string unfit_keys(const MappingTask& task);

// Says that the keys are parts of tensors that were cut among ranks, if most of the pairs differ by
// the same factor in one dimension each; "" otherwise.
[[nodiscard]] std::string cut_among_ranks(const MappingTask& task, const Aligned& aligned);

}  // namespace onnx_external
