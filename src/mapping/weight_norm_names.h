// Renames the parameters of weight normalization, for which torch has two naming schemes, so that
// the names in the checkpoint match the names in the graph.
#pragma once

#include "mapping/task.h"

namespace onnx_external {

// Renames keys to the names in the graph. "conv.weight_g" and "conv.weight_v"
// (torch.nn.utils.weight_norm) are the same parameters as "conv.parametrizations.weight.original0"
// and "...original1" (torch.nn.utils.parametrizations.weight_norm). A pair is renamed only if both
// keys exist and no key already has the graph's name. Requires: keys and slots have been listed.
void respell_weight_norm(MappingTask& task);

}  // namespace onnx_external
