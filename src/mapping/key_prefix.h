// Finds the prefix by which the names of keys (tensors of a checkpoint) differ from the names of
// slots (values of a graph). It must be added to all keys or removed from all keys, or there is
// none.
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
  bool exact = true;  // the names are equal, and not only their refined forms
};

// Slots and keys that all have the same refined name, so that it is not known which belong
// together.
struct PrefixConflict {
  std::vector<std::uint32_t> slot_names;
  std::vector<std::uint32_t> keys;
};

// How well a key prefix fits the slots that are still open.
struct Aligned {
  KeyPrefix key_prefix;
  std::vector<AlignedPair> fits;     // names match; types and shapes agree as far as stated
  std::vector<AlignedPair> clashes;  // names match; types or shapes differ
  std::vector<PrefixConflict> conflicts;
  std::uint64_t score = 0;  // number of slots that `fits` fills
};

// Returns the key prefix that fills the most open slots. If no prefix fills any slot, returns the
// prefix with the most matching names, whose clashes show why it fails. If a second prefix fits
// about as well, the call fails with kAmbiguous, except that one of several graphs gets the prefix
// that is its own name (docs/mapping.md). If --prefix is empty, only Kind::kNone is tried.
[[nodiscard]] Result<Aligned> choose_key_prefix(const MappingTask& task);

// Does the same, but does not check whether other prefixes fit about as well.
[[nodiscard]] Aligned best_key_prefix(const MappingTask& task);

// "", "+prefix", "-prefix".
[[nodiscard]] std::string key_prefix_text(const KeyPrefix& key_prefix);

}  // namespace onnx_external
