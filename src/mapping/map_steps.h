// Carries out the steps of map_graphs().
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Fills slots by all rules, in their order.
[[nodiscard]] Result<KeyPrefix> apply_rules(const MappingEvidence& evidence, MappingTask& task);

// Fills in the rest of a mapping whose verdicts are there. Requires: check_refusals() succeeded.
void complete_mapping(const MappingTask& task, const KeyPrefix& key_prefix, Mapping& mapping);

// The other graphs of a set, which are not mapped now.
struct OthersOfSet {
  bool exist = false;
  std::vector<std::string> used_keys = {};  // they count as used
};

// Works like map_graphs().
[[nodiscard]] Result<std::vector<Mapping>> map_graphs_beside(std::span<const GraphToMap> graphs,
                                                             const MappingKeys& keys,
                                                             const MappingOptions& options,
                                                             const OthersOfSet& others);

}  // namespace onnx_external
