// Tries prefixes that could be added to the names of all keys (tensors of a checkpoint) or removed
// from them, and finds out which slots (values of a graph) the keys would then fill.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mapping/key_prefix.h"
#include "mapping/name_index.h"
#include "mapping/prefix_candidates.h"
#include "mapping/task.h"

namespace onnx_external {

// The amount of detail to compute for a key prefix. kFits takes only time proportional to the
// number of matching names, because it is used for every prefix under which two names match.
enum class AlignDetail : std::uint8_t {
  kFits,        // Aligned::fits and its score
  kEverything,  // also clashes and conflicts
};

// For one thread at a time. The task must outlive the aligner.
class Aligner {
 public:
  explicit Aligner(const MappingTask& task);
  // Returns the prefixes under which the name of at least one key matches a slot, those with the
  // most matches first. They are found by looking up each suffix that starts at a component
  // boundary in the index of the other side.
  [[nodiscard]] PrefixCandidates candidates();
  [[nodiscard]] Aligned apply(const KeyPrefix& key_prefix, AlignDetail detail);
  [[nodiscard]] Aligned apply(const PrefixCandidate& candidate, AlignDetail detail);
  // Returns whether every open slot gets the key of its own name, so that no prefix is needed.
  [[nodiscard]] bool fills_all(const Aligned& aligned) const;

 private:
  void count(std::span<const std::uint32_t> slot_names, std::span<const std::uint32_t> keys,
             PrefixCandidate& candidate) const;
  // Adds the prefixes of sorted names. Names with the same prefix are adjacent, so a prefix is
  // complete as soon as a name does not begin with it, and only the prefixes of the current name
  // are incomplete.
  void add_candidates(std::span<const NameIndex::Entry> sorted, NameIndex& others,
                      KeyPrefix::Kind kind, PrefixCandidates& list);
  void settle_bucket(const std::vector<std::uint32_t>& members,
                     std::span<const std::uint32_t> bucket, AlignDetail detail, Aligned& aligned);
  // Returns the name after the prefix was removed or added.
  [[nodiscard]] std::string_view tail(bool is_slot, std::uint32_t id,
                                      const KeyPrefix& key_prefix) const;
  // Pairs names with the same refined form: first names that are spelled as in the graph, then
  // equal names, then the last slot and the last key if only these two are left.
  void settle(std::vector<std::uint32_t> slots, std::vector<std::uint32_t> keys,
              Aligned& aligned) const;
  // Finds the same pairs as settle() in time proportional to the members. The bucket has more
  // entries than members, so the last step of settle() never applies.
  void settle_few(const std::vector<std::uint32_t>& members, std::span<const std::uint32_t> bucket,
                  Aligned& aligned);
  // Pairs slots and keys whose texts are equal and occur once on each side, and removes them.
  template <typename SlotText, typename KeyText>
  void pair_equal(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& keys,
                  Aligned& aligned, const SlotText& slot_text, const KeyText& key_text) const;
  void pair(std::uint32_t slot_name, std::uint32_t key, bool exact, Aligned& aligned) const;

  const MappingTask& task_;
  NameIndex keys_;
  NameIndex slots_;
};

}  // namespace onnx_external
