// Finds the one prefix by which the keys of a checkpoint differ from the names of a graph: none,
// one that must be added to all keys, or one that must be removed from them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mapping/task.h"

namespace onnx_external {

struct KeyPrefix {
  enum class Kind : std::uint8_t { kNone, kRemove, kAdd };
  Kind kind = Kind::kNone;
  std::string prefix;  // with its separator: "module."
};

struct AlignedPair {
  std::uint32_t slot_name = 0;  // index into MappingTask::slot_names
  std::uint32_t key = 0;
  bool exact = true;  // the names are equal even before they are refined
};

// Slots and keys that all have the same refined name, so that nothing says which belong together.
struct PrefixConflict {
  std::vector<std::uint32_t> slot_names;
  std::vector<std::uint32_t> keys;
};

// The fit of a key prefix to the slots that are still open.
struct Aligned {
  KeyPrefix key_prefix;
  std::vector<AlignedPair> fits;     // names match; types and shapes agree as far as stated
  std::vector<AlignedPair> clashes;  // names match; types or shapes differ
  std::vector<PrefixConflict> conflicts;
  std::uint64_t score = 0;  // number of slots that `fits` fills
};

// Returns the key prefix that fills most open slots. If none fills any, returns the one with most
// matching names; its clashes then say why it fails. If a second one fits about as well, a graph
// that is one of several takes the one that is its own name; kAmbiguous otherwise
// (docs/mapping.md). With an empty --prefix, only Kind::kNone is tried.
[[nodiscard]] Result<Aligned> choose_key_prefix(const MappingTask& task);

// The same without a look at others that fit.
[[nodiscard]] Aligned best_key_prefix(const MappingTask& task);

// "", "+prefix", "-prefix".
[[nodiscard]] std::string key_prefix_text(const KeyPrefix& key_prefix);

}  // namespace onnx_external
