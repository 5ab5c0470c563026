// Decides the verdicts on everything that the mapping rules did not pair: keys (tensors of a
// checkpoint) without a slot, slots (values of a graph) without a key, and graph inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Sets Mapping::keys and unused_modules. Passes errors of `evidence` on.
[[nodiscard]] Status judge_keys(const MappingTask& task, const KeyPrefix& key_prefix,
                                const MappingEvidence& evidence, Mapping& mapping);

// Sets Mapping::slots, other_inputs and stale_constants, replacing earlier verdicts. A key becomes
// kBaked if the graph's data turns out to have its values. Requires: judge_keys() was called.
// Passes errors of `evidence` on.
[[nodiscard]] Status judge_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                                 const MappingEvidence& evidence, Mapping& mapping);

// Returns whether a key fills no slot and is not excluded by the options. Such a key should not be
// left out silently.
[[nodiscard]] bool is_left_over(KeyVerdict verdict);

// Returns the slots that are missing or old; slots that are inputs of the graph come last.
[[nodiscard]] std::vector<std::uint32_t> slots_without_key(const MappingTask& task,
                                                           const Mapping& mapping);

}  // namespace onnx_external
