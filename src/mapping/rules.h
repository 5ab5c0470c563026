// Applies the mapping rules, except the choice of the key prefix. Each rule fills slots that are
// still open.
#pragma once

#include <cstdint>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Rule 1: --map and --tie. kNotFound for names that do not exist, kAmbiguous for two keys for the
// same slot, kInvalidArgument for a slot that is a user input; kMismatch.
[[nodiscard]] Status fill_explicit(MappingTask& task);

// Rule 3: the pairs of the chosen key prefix. kAmbiguous for two keys for the same slot; kMismatch.
[[nodiscard]] Status fill_aligned(const Aligned& aligned, MappingTask& task);

// Rule 4: the longest suffix at a component boundary, unique both ways.
void fill_by_suffix(MappingTask& task);

}  // namespace onnx_external
