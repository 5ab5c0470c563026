// What is left over on both sides once the rules have run: keys that no slot takes, and data that
// no key replaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mapping/alignment.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

struct Leftovers {
  // Keys that no slot takes, each in one of these lists.
  std::vector<std::uint32_t> unused;    // weights that the graph should have a place for
  std::vector<std::uint32_t> adapters;  // weights of LoRA and its like
  std::vector<std::uint32_t> aside;     // of modules that the graph does not use
  std::vector<std::uint32_t> harmless;  // integers, baked buffers, keys beside a removed prefix
  std::vector<std::uint32_t> baked;     // of these: buffers, and keys whose values the graph has
  std::vector<std::uint32_t> ignored;   // what the options leave out
  std::vector<TiedKey> tied;            // their bytes are those of a used key
  std::vector<UnusedModule> modules;    // of the keys in `aside`

  // Slots that no key fills.
  std::vector<std::uint32_t> missing;  // weights, and whatever else has no data
  std::vector<std::uint32_t> held;     // data that the exporter computed from weights, or may have
  std::vector<std::uint32_t> kept;     // initializers that keep their data, rightly
  std::vector<std::string> constants;  // Constant nodes with the elements of a key in `aside`

  // Inputs of the graph.
  std::vector<std::string> callers;        // the caller's
  std::vector<std::uint32_t> unconfirmed;  // the caller's or weights: nobody can tell
  std::vector<std::uint32_t> suspects;     // filled by a key of that name, or the caller's
};

// Fails as the evidence does.
[[nodiscard]] Result<Leftovers> find_leftovers(const MappingTask& task, const Alignment& alignment,
                                               const MappingEvidence& evidence);

}  // namespace onnx_external
