// Decides which graph inputs are user inputs (supplied by the caller at run time), as far as the
// graph shows this.
#pragma once

#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Returns whether the name is like "input.1", "onnx::Gather_0" or "0", which exporters invent for
// arguments and for values that they computed.
[[nodiscard]] bool is_made_up(std::string_view name);

// Sets Mapping::other_inputs and the verdicts on the slots that are inputs. Requires: all other
// verdicts are set.
void judge_inputs(const MappingTask& task, Mapping& mapping);

}  // namespace onnx_external
