// Sorts what the rules did not pair: keys without a slot, slots without a key, and graph inputs.
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
  std::vector<std::uint32_t> unused;              // weights that should have a slot in the graph
  std::vector<std::uint32_t> adapters;            // weights of LoRA and the like
  std::vector<std::uint32_t> unused_module_keys;  // keys of modules that the graph does not use
  std::vector<std::uint32_t>
      non_weights;  // integers, baked-in buffers, keys outside a removed prefix
  std::vector<std::uint32_t>
      baked;  // of `non_weights`: buffers, and keys whose values the graph has
  std::vector<std::uint32_t> ignored;  // excluded by the options
  std::vector<TiedKey> tied;           // keys with the same bytes as a used key
  std::vector<UnusedModule> modules;   // of the keys in `unused_module_keys`

  // The keys that should not be left out silently, in checkpoint order: all but those that are
  // ignored or tied.
  [[nodiscard]] std::vector<std::uint32_t> without_slot() const;

  // Slots that no key fills.
  std::vector<std::uint32_t> missing;  // weights and other slots without data
  // Data that the exporter computed, or may have computed, from weights.
  std::vector<std::uint32_t> stale;
  std::vector<std::uint32_t> kept;  // initializers that keep their data: right, or a constant
  std::vector<std::string>
      constants;  // Constant nodes with the elements of a key in `unused_module_keys`

  // Inputs of the graph.
  std::vector<std::string> user_inputs;    // inputs that the user supplies at run time
  std::vector<std::uint32_t> unconfirmed;  // user inputs or weights: the graph does not tell
  std::vector<std::uint32_t> doubtful;     // filled by a key of that name, but maybe user inputs
};

// Fills the lists of slots and inputs. Requires: mapping/leftover_keys.h has filled the lists of
// keys. Passes errors of `evidence` on.
[[nodiscard]] Status find_leftover_slots(const MappingTask& task, const KeyPrefix& key_prefix,
                                         const MappingEvidence& evidence, Leftovers& leftovers);

}  // namespace onnx_external
