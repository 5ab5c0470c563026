// The steps of map_graphs().
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/leftovers.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Fills slots by all rules, in their order.
[[nodiscard]] Result<KeyPrefix> apply_rules(const MappingEvidence& evidence, MappingTask& task);

// Requires: check_refusals() succeeded.
[[nodiscard]] Mapping make_mapping(const MappingTask& task, Leftovers leftovers,
                                   const KeyPrefix& key_prefix);

// Works like map_graphs(). The keys in `used_elsewhere` count as used: other graphs of the set,
// which are not mapped now, use them.
[[nodiscard]] Result<std::vector<Mapping>> map_graphs_beside(
    std::span<const GraphToMap> graphs, const MappingKeys& keys, const MappingOptions& options,
    std::span<const std::string> used_elsewhere);

}  // namespace onnx_external
