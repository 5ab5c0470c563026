// What a mapping is refused for once the rules have run.
#pragma once

#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// One refusal with everything that is wrong, or none. docs/mapping.md explains each.
[[nodiscard]] Status check_refusals(const MappingTask& task, const Leftovers& leftovers);

}  // namespace onnx_external
