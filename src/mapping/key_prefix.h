// Finds the prefix by which the names of keys (tensors of a checkpoint) differ from the names of
// slots (values of a graph). The prefix is either added to the names of all keys or removed from
// all of them. There may be no such prefix.
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
  std::string prefix;  // including the separator: "module."
};

struct AlignedPair {
  std::uint32_t slot_name = 0;  // index into MappingTask::slot_names
  std::uint32_t key = 0;
  bool exact = true;  // true if the names are equal, and not only their refined forms
};

// Slots and keys with the same refined name that cannot be paired, because several pairs are
// possible.
struct PrefixConflict {
  std::vector<std::uint32_t> slot_names;
  std::vector<std::uint32_t> keys;
};

// The result of matching all keys with the open slots under one key prefix.
struct Aligned {
  KeyPrefix key_prefix;
  std::vector<AlignedPair> fits;     // names match, and stated types and shapes agree
  std::vector<AlignedPair> clashes;  // names match, but types or shapes differ
  std::vector<PrefixConflict> conflicts;
  std::uint64_t score = 0;  // number of slots that `fits` fills
};

// Returns the key prefix that fills the most open slots. If no prefix fills any slot, returns the
// prefix with the most matching names, whose clashes show why it fails. If a second prefix fills
// about as many slots, the call fails with kAmbiguous, unless there are several graphs and one of
// the prefixes is the name of this graph (docs/mapping.md). If --prefix is empty, only Kind::kNone
// is tried.
[[nodiscard]] Result<Aligned> choose_key_prefix(const MappingTask& task);

// Works like choose_key_prefix(), but does not check whether a second prefix fills about as many
// slots.
[[nodiscard]] Aligned best_key_prefix(const MappingTask& task);

// Returns a key prefix as text: "+prefix", "-prefix", or "" for none.
[[nodiscard]] std::string key_prefix_text(const KeyPrefix& key_prefix);

}  // namespace onnx_external
