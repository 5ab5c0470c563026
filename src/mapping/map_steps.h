// The steps of map_tensors() and map_graphs().
#pragma once

#include "mapping/alignment.h"
#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Fills slots by all rules, in their order.
[[nodiscard]] Result<Alignment> apply_rules(const MappingEvidence& evidence, MappingTask& task);

// Requires: check_refusals() has nothing against it.
[[nodiscard]] Mapping make_mapping(const MappingTask& task, Leftovers leftovers,
                                   const Alignment& alignment);

}  // namespace onnx_external
