// Decides which inputs of the graph are user inputs, as far as this can be known.
#pragma once

#include <string_view>

#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// True for names like "input.1", "onnx::Gather_0" and "0", which exporters invent for arguments and
// for values that they computed.
[[nodiscard]] bool is_made_up(std::string_view name);

// Fills Mapping::other_inputs and the verdicts on the slots that are inputs. Requires: all other
// verdicts are there.
void judge_inputs(const MappingTask& task, Mapping& mapping);

}  // namespace onnx_external
