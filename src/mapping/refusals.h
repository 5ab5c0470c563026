// The reasons to refuse a mapping after the rules have run.
#pragma once

#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// One error with everything that is wrong, or success. docs/mapping.md explains each reason.
[[nodiscard]] Status check_refusals(const MappingTask& task, const Leftovers& leftovers);

}  // namespace onnx_external
