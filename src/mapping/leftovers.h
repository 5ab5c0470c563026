// Determines the verdicts for keys (tensors of a checkpoint) without a slot, for slots (values of a
// graph) without a key, and for graph inputs, after the mapping rules were applied.
#pragma once

#include <cstdint>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

// Sets Mapping::keys and Mapping::unused_modules. Errors are those of `evidence`.
[[nodiscard]] Status judge_keys(const MappingTask& task, const KeyPrefix& key_prefix,
                                const MappingEvidence& evidence, Mapping& mapping);

// Sets Mapping::slots, other_inputs and stale_constants, replacing earlier verdicts. If the graph's
// data has the values of a key, the verdict of the key becomes kBaked. Errors are those of
// `evidence`. Requires: judge_keys() was called.
[[nodiscard]] Status judge_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                                 const MappingEvidence& evidence, Mapping& mapping);

// Returns whether a key with this verdict fills no slot although the options do not exclude it.
// Such a key must not be left out silently.
[[nodiscard]] bool is_left_over(KeyVerdict verdict);

// Returns the slots with the verdicts kMissing and kOld; slots that are inputs of the graph come
// last.
[[nodiscard]] std::vector<std::uint32_t> slots_without_key(const MappingTask& task,
                                                           const Mapping& mapping);

}  // namespace onnx_external
