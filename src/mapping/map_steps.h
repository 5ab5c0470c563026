// Implements the steps of map_graphs(), which applies the rules and completes the mapping.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Applies all rules, in their order, to fill slots.
[[nodiscard]] Result<KeyPrefix> apply_rules(const MappingEvidence& evidence, MappingTask& task);

// Sets the remaining members of a mapping whose verdicts are set. Requires: check_refusals()
// succeeded.
void complete_mapping(const MappingTask& task, const KeyPrefix& key_prefix, Mapping& mapping);

// Describes graphs that share the checkpoint, but are not mapped in this call.
struct OthersOfSet {
  bool exist = false;
  std::vector<std::string> used_keys = {};  // keys that count as used
};

// Works like map_graphs(), but keys that are in others.used_keys also count as used.
[[nodiscard]] Result<std::vector<Mapping>> map_graphs_beside(std::span<const GraphToMap> graphs,
                                                             const MappingKeys& keys,
                                                             const MappingOptions& options,
                                                             const OthersOfSet& others);

}  // namespace onnx_external
