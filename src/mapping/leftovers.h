// Judges everything that the rules did not pair: keys without a slot, slots without a key, and
// graph inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Fills Mapping::keys and unused_modules. Passes errors of `evidence` on.
[[nodiscard]] Status judge_keys(const MappingTask& task, const KeyPrefix& key_prefix,
                                const MappingEvidence& evidence, Mapping& mapping);

// Fills the slots, other inputs and stale constants of the mapping, replacing earlier verdicts. A
// key becomes kBaked if the graph's data turns out to have its values. Requires: judge_keys().
// Passes errors of `evidence` on.
[[nodiscard]] Status judge_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                                 const MappingEvidence& evidence, Mapping& mapping);

// True for a key that no slot takes and that the options do not exclude: it should not be left out
// silently.
[[nodiscard]] bool is_left_over(KeyVerdict verdict);

// The slots that are missing or old, those that are inputs of the graph last.
[[nodiscard]] std::vector<std::uint32_t> slots_without_key(const MappingTask& task,
                                                           const Mapping& mapping);

}  // namespace onnx_external
