// Tries prefixes that can be added to the names of all keys (tensors of a checkpoint) or removed
// from them, and determines which slots (values of a graph) the keys would then fill.
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

// The amount of detail to compute for a key prefix. kFits is used for every prefix under which two
// names match, and takes time proportional to the number of matching names.
enum class AlignDetail : std::uint8_t {
  kFits,        // Aligned::fits and its score
  kEverything,  // also clashes and conflicts
};

// Tries prefixes for one task, which must outlive this object. For use by one thread at a time.
class Aligner {
 public:
  explicit Aligner(const MappingTask& task);
  // Returns the prefixes under which the name of at least one key matches a slot, those with the
  // most matches first. For this, each suffix that starts at a component boundary is looked up in
  // the index of the other side.
  [[nodiscard]] PrefixCandidates candidates();
  [[nodiscard]] Aligned apply(const KeyPrefix& key_prefix, AlignDetail detail);
  [[nodiscard]] Aligned apply(const PrefixCandidate& candidate, AlignDetail detail);
  // Returns whether every open slot gets the key with its own name, so that no prefix is needed.
  [[nodiscard]] bool fills_all(const Aligned& aligned) const;

 private:
  void count(std::span<const std::uint32_t> slot_names, std::span<const std::uint32_t> keys,
             PrefixCandidate& candidate) const;
  // Adds the prefixes of sorted names. Names with the same prefix are adjacent, so a prefix is
  // complete when a name does not begin with it, and only the prefixes of the current name are kept
  // in memory.
  void add_candidates(std::span<const NameIndex::Entry> sorted, NameIndex& others,
                      KeyPrefix::Kind kind, PrefixCandidates& list);
  void settle_bucket(const std::vector<std::uint32_t>& members,
                     std::span<const std::uint32_t> bucket, AlignDetail detail, Aligned& aligned);
  // Returns the name after the prefix was removed or added.
  [[nodiscard]] std::string_view tail(bool is_slot, std::uint32_t id,
                                      const KeyPrefix& key_prefix) const;
  // Pairs names with the same refined form. It first pairs keys whose names are spelled as in the
  // graph, then equal names. If one slot and one key are left after this, they are also paired.
  void settle(std::vector<std::uint32_t> slots, std::vector<std::uint32_t> keys,
              Aligned& aligned) const;
  // Finds the same pairs as settle() in time proportional to the number of members. The last step
  // of settle() never applies here, because the bucket has more entries than members.
  void settle_few(const std::vector<std::uint32_t>& members, std::span<const std::uint32_t> bucket,
                  Aligned& aligned);
  // Pairs slots and keys whose texts are equal and occur once on each side, and removes them from
  // the lists.
  template <typename SlotText, typename KeyText>
  void pair_equal(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& keys,
                  Aligned& aligned, const SlotText& slot_text, const KeyText& key_text) const;
  void pair(std::uint32_t slot_name, std::uint32_t key, bool exact, Aligned& aligned) const;

  const MappingTask& task_;
  NameIndex keys_;
  NameIndex slots_;
};

}  // namespace onnx_external
