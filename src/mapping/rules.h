// Applies the mapping rules (docs/mapping.md), except for the choice of the key prefix. Each rule
// fills slots (values of a graph) that are still open with keys (tensors of a checkpoint).
#pragma once

#include <cstdint>

#include "mapping/key_prefix.h"
#include "mapping/task.h"

namespace onnx_external {

// Applies rule 1: fills slots with the pairs in MappingOptions::map, then with those in
// MappingOptions::learned. Fails with kNotFound for names that do not exist, with kAmbiguous if two
// keys are given for the same slot, with kInvalidArgument for a slot that is a user input, and with
// kMismatch.
[[nodiscard]] Status fill_explicit(MappingTask& task);

// Applies rules 2 and 3: fills slots with the pairs that match under the chosen key prefix, if
// there is one. Errors: kAmbiguous for two keys for the same slot, kMismatch.
[[nodiscard]] Status fill_aligned(const Aligned& aligned, MappingTask& task);

// Applies rule 4: pairs names with the longest common suffix at a component boundary, if the pair
// is unique in both directions.
void fill_by_suffix(MappingTask& task);

}  // namespace onnx_external
