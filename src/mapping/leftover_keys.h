// Sorts the keys that no slot takes.
#pragma once

#include "mapping/leftovers.h"

namespace onnx_external {

// Fills the lists of keys in `leftovers`. Errors of the evidence are passed on.
[[nodiscard]] Status sort_keys(const MappingTask& task, const KeyPrefix& key_prefix,
                               const MappingEvidence& evidence, Leftovers& leftovers);

}  // namespace onnx_external
