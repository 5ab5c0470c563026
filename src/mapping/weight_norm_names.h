// Brings together the two spellings of the parameters that torch's weight normalization makes.
#pragma once

#include "mapping/task.h"

namespace onnx_external {

// Respells keys as the graph spells its slots: "conv.weight_g" and "conv.weight_v"
// (torch.nn.utils.weight_norm) are "conv.parametrizations.weight.original0" and "...original1"
// (torch.nn.utils.parametrizations.weight_norm), whose load_state_dict() also takes the former.
// Requires: both keys of a pair are there, and none of the graph's spelling. Call it when keys and
// slots are listed.
void respell_weight_norm(MappingTask& task);

}  // namespace onnx_external
