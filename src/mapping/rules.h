// The rules beside the alignment, each on the slots that are still open.
#pragma once

#include <cstdint>

#include "mapping/alignment.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 1: --map and --tie. kNotFound for names that do not exist, kAmbiguous for two keys for one
// slot, kMismatch, kInvalidArgument for a slot that belongs to the caller.
[[nodiscard]] Status fill_explicit(MappingTask& task);

// Rule 3: what the chosen alignment fits. kAmbiguous for two keys for one slot; kMismatch.
[[nodiscard]] Status fill_aligned(const Aligned& aligned, MappingTask& task);

// Rule 4: the longest suffix at a component boundary, unique both ways.
void fill_by_suffix(MappingTask& task);

}  // namespace onnx_external
