// Decides, from the information in the graph, which graph inputs are user inputs, that is, supplied
// by the caller at run time.
#pragma once

#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Returns whether the name has a form such as "input.1", "onnx::Gather_0" or "0", which exporters
// generate for arguments and for values that they computed.
[[nodiscard]] bool is_made_up(std::string_view name);

// Sets Mapping::other_inputs and the verdicts for slots that are inputs. Requires: all other
// verdicts are set.
void judge_inputs(const MappingTask& task, Mapping& mapping);

}  // namespace onnx_external
