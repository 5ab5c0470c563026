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

// Requires: check_refusals() has nothing against it.
[[nodiscard]] Mapping make_mapping(const MappingTask& task, Leftovers leftovers,
                                   const KeyPrefix& key_prefix);

// As map_graphs(); `used_elsewhere` are keys that graphs of the same set use that are not mapped
// now. They count as used.
[[nodiscard]] Result<std::vector<Mapping>> map_graphs_beside(
    std::span<const GraphToMap> graphs, const MappingKeys& keys, const MappingOptions& options,
    std::span<const std::string> used_elsewhere);

}  // namespace onnx_external
