// What remains on both sides after the rules: keys that no slot takes, and data that no key
// replaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

struct Leftovers {
  // Keys that no slot takes, each in one of these lists.
  std::vector<std::uint32_t> unused;    // weights that should have a slot in the graph
  std::vector<std::uint32_t> adapters;  // weights of LoRA and the like
  std::vector<std::uint32_t> aside;     // keys of modules that the graph does not use
  std::vector<std::uint32_t> harmless;  // integers, baked-in buffers, keys outside a removed prefix
  std::vector<std::uint32_t> baked;     // of these: buffers, and keys whose values the graph has
  std::vector<std::uint32_t> ignored;   // excluded by the options
  std::vector<TiedKey> tied;            // keys with the same bytes as a used key
  std::vector<UnusedModule> modules;    // of the keys in `aside`

  // The keys that should not be left out silently, in checkpoint order: all but those that are
  // ignored or tied.
  [[nodiscard]] std::vector<std::uint32_t> without_slot() const;

  // Slots that no key fills.
  std::vector<std::uint32_t> missing;  // weights and other slots without data
  std::vector<std::uint32_t>
      held;  // data that the exporter computed, or may have computed, from weights
  std::vector<std::uint32_t> staying;  // initializers whose data is right, or a constant
  std::vector<std::string> constants;  // Constant nodes with the elements of a key in `aside`

  // Inputs of the graph.
  std::vector<std::string> user_inputs;    // inputs that the user gives
  std::vector<std::uint32_t> unconfirmed;  // the caller's or weights; this is not known
  std::vector<std::uint32_t> suspects;     // filled by a key of that name, but perhaps the caller's
};

// Fills the lists of slots and inputs. Requires: the lists of keys are complete
// (mapping/leftover_keys.h). Errors of the evidence are passed on.
[[nodiscard]] Status find_leftover_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                                         const MappingEvidence& evidence, Leftovers& leftovers);

}  // namespace onnx_external
