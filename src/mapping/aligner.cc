#include "mapping/aligner.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/name_map.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

using Kind = KeyPrefix::Kind;

// The maximum number of pairs in a bucket that are checked to find out whether any of them fits.
constexpr std::size_t kMaxLookedAt = 8;

}  // namespace

Aligner::Aligner(const MappingTask& task)
    : task_(task), keys_(usable_keys(task)), slots_(open_slots(task)) {}

PrefixCandidates Aligner::candidates() {
  PrefixCandidates list;
  PrefixCandidate none;
  for (const NameIndex::Entry& key : keys_.all()) {
    count(slots_.refined_as(key.refined), {&key.id, 1}, none);
  }
  if (none.names > 0) {
    list.add(none);
  }
  if (!task_.keys_have_own_names()) {
    add_candidates(keys_.sorted(), slots_, Kind::kRemove, list);
    add_candidates(slots_.sorted(), keys_, Kind::kAdd, list);
  }
  list.sort();
  return list;
}

Aligned Aligner::apply(const KeyPrefix& key_prefix, AlignDetail detail) {
  Aligned aligned;
  aligned.key_prefix = key_prefix;
  const bool add = key_prefix.kind == Kind::kAdd;
  NameIndex& walked = add ? slots_ : keys_;
  NameIndex& met = add ? keys_ : slots_;
  // Grouped by the bucket that they match: names with the same refined form are paired together.
  std::vector<std::pair<std::span<const std::uint32_t>, std::uint32_t>> hits;
  const std::span<const NameIndex::Entry> under = walked.under(key_prefix.prefix);
  hits.reserve(under.size());
  for (const NameIndex::Entry& entry : under) {
    if (entry.name.size() == key_prefix.prefix.size()) {
      continue;
    }
    const auto bucket = met.refined_as(entry.refined.substr(key_prefix.prefix.size()));
    if (!bucket.empty()) {
      hits.emplace_back(bucket, entry.id);
    }
  }
  const auto stands_before = [](const auto& a, const auto& b) {
    return a.first.data() < b.first.data();
  };
  if (!std::is_sorted(hits.begin(), hits.end(), stands_before)) {
    std::stable_sort(hits.begin(), hits.end(), stands_before);
  }
  std::vector<std::uint32_t> members;
  for (std::size_t i = 0; i < hits.size();) {
    members.clear();
    const auto bucket = hits[i].first;
    for (; i < hits.size() && hits[i].first.data() == bucket.data(); ++i) {
      members.push_back(hits[i].second);
    }
    settle_bucket(members, bucket, detail, aligned);
  }
  // Messages list pairs in the order of the graph.
  for (std::vector<AlignedPair>* pairs : {&aligned.fits, &aligned.clashes}) {
    std::sort(pairs->begin(), pairs->end(),
              [](const AlignedPair& a, const AlignedPair& b) { return a.slot_name < b.slot_name; });
  }
  return aligned;
}

Aligned Aligner::apply(const PrefixCandidate& candidate, AlignDetail detail) {
  return apply(KeyPrefix{candidate.kind, std::string(candidate.prefix)}, detail);
}

bool Aligner::fills_all(const Aligned& aligned) const {
  const auto is_exact = [](const AlignedPair& pair) { return pair.exact; };
  const bool all = aligned.score > 0 && aligned.clashes.empty() && aligned.conflicts.empty() &&
                   aligned.fits.size() == slots_.all().size();
  return all && (aligned.fits.size() == keys_.all().size() ||
                 std::all_of(aligned.fits.begin(), aligned.fits.end(), is_exact));
}

void Aligner::count(std::span<const std::uint32_t> slot_names, std::span<const std::uint32_t> keys,
                    PrefixCandidate& candidate) const {
  std::uint64_t most = 0;
  std::uint64_t agreeing = 0;
  for (const std::uint32_t slot : slot_names.first(std::min(slot_names.size(), kMaxLookedAt))) {
    most = std::max<std::uint64_t>(most, task_.slot_names[slot].slots.size());
    for (const std::uint32_t key : keys.first(std::min(keys.size(), kMaxLookedAt))) {
      if (agrees(task_, slot, key)) {
        agreeing = std::max<std::uint64_t>(agreeing, task_.slot_names[slot].slots.size());
      }
    }
  }
  candidate.names += most;
  candidate.agreeing += agreeing;
}

void Aligner::add_candidates(std::span<const NameIndex::Entry> sorted, NameIndex& others, Kind kind,
                             PrefixCandidates& list) {
  std::vector<PrefixCandidate> open;  // by ascending length
  for (const NameIndex::Entry& entry : sorted) {
    while (!open.empty() && !entry.name.starts_with(open.back().prefix)) {
      list.add(open.back());
      open.pop_back();
    }
    for (const std::size_t at : boundaries(entry.name)) {
      const auto met = others.refined_as(entry.refined.substr(at));
      if (met.empty()) {
        continue;
      }
      auto place = std::find_if(open.begin(), open.end(),
                                [at](const PrefixCandidate& c) { return c.prefix.size() >= at; });
      if (place == open.end() || place->prefix.size() > at) {
        place =
            open.insert(place, PrefixCandidate{.prefix = entry.name.substr(0, at), .kind = kind});
      }
      const std::span<const std::uint32_t> own(&entry.id, 1);
      kind == Kind::kRemove ? count(met, own, *place) : count(own, met, *place);
    }
  }
  for (const PrefixCandidate& candidate : open) {
    list.add(candidate);
  }
}

void Aligner::settle_bucket(const std::vector<std::uint32_t>& members,
                            std::span<const std::uint32_t> bucket, AlignDetail detail,
                            Aligned& aligned) {
  const bool add = aligned.key_prefix.kind == Kind::kAdd;
  if (bucket.size() == 1 && members.size() == 1) {
    const std::uint32_t slot_name = add ? members[0] : bucket[0];
    const std::uint32_t key = add ? bucket[0] : members[0];
    pair(slot_name, key,
         tail(true, slot_name, aligned.key_prefix) == tail(false, key, aligned.key_prefix),
         aligned);
  } else if (detail == AlignDetail::kFits && bucket.size() > members.size()) {
    settle_few(members, bucket, aligned);
  } else {
    std::vector<std::uint32_t> met(bucket.begin(), bucket.end());
    settle(add ? members : met, add ? met : members, aligned);
  }
}

std::string_view Aligner::tail(bool is_slot, std::uint32_t id, const KeyPrefix& key_prefix) const {
  const std::string_view name = is_slot ? task_.slot_names[id].name : task_.key_names[id].name;
  const bool shortened = is_slot ? key_prefix.kind == Kind::kAdd : key_prefix.kind == Kind::kRemove;
  return shortened ? name.substr(key_prefix.prefix.size()) : name;
}

void Aligner::settle(std::vector<std::uint32_t> slots, std::vector<std::uint32_t> keys,
                     Aligned& aligned) const {
  const KeyPrefix& key_prefix = aligned.key_prefix;
  pair_equal(
      slots, keys, aligned,
      [&](std::uint32_t s) { return std::string_view(task_.first_slot(s).name); },
      [&](std::uint32_t k) { return std::string_view(task_.keys.keys[k].name); });
  pair_equal(
      slots, keys, aligned, [&](std::uint32_t s) { return tail(true, s, key_prefix); },
      [&](std::uint32_t k) { return tail(false, k, key_prefix); });
  if (slots.size() == 1 && keys.size() == 1) {
    pair(slots[0], keys[0], false, aligned);
  } else if (!slots.empty() && !keys.empty()) {
    aligned.conflicts.push_back({std::move(slots), std::move(keys)});
  }
}

void Aligner::settle_few(const std::vector<std::uint32_t>& members,
                         std::span<const std::uint32_t> bucket, Aligned& aligned) {
  const bool add = aligned.key_prefix.kind == Kind::kAdd;
  NameMap<std::vector<std::uint32_t>> taken;  // paired ids of the bucket, by name
  NameMap<std::vector<std::uint32_t>> left;   // unpaired members, by name without the prefix
  const auto pair_met = [&](std::uint32_t member, std::uint32_t met) {
    pair(add ? member : met, add ? met : member, true, aligned);
  };
  for (const std::uint32_t member : members) {
    const auto same = add ? task_.key_by_name.find(task_.first_slot(member).name)
                          : task_.slot_name_called(task_.keys.keys[member].name);
    if (same && std::binary_search(bucket.begin(), bucket.end(), *same)) {
      taken[tail(!add, *same, aligned.key_prefix)].push_back(*same);
      pair_met(member, *same);
    } else {
      left[tail(add, member, aligned.key_prefix)].push_back(member);
    }
  }
  for (const auto& [name, own] : left) {
    const std::span<const NameIndex::Entry> same = (add ? keys_ : slots_).called(name);
    const auto found = taken.find(name);
    std::vector<std::uint32_t> gone =
        found == taken.end() ? std::vector<std::uint32_t>() : found->second;
    if (own.size() == 1 && same.size() == gone.size() + 1) {
      std::sort(gone.begin(), gone.end());
      const auto is_gone = [](std::uint32_t id, const NameIndex::Entry& entry) {
        return id == entry.id;
      };
      pair_met(own[0], std::mismatch(gone.begin(), gone.end(), same.begin(), is_gone).second->id);
    }
  }
}

template <typename SlotText, typename KeyText>
void Aligner::pair_equal(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& keys,
                         Aligned& aligned, const SlotText& slot_text,
                         const KeyText& key_text) const {
  struct Same {
    std::vector<std::uint32_t> slots;
    std::vector<std::uint32_t> keys;
  };
  std::map<std::string_view, Same> by_text;
  for (const std::uint32_t slot : slots) {
    by_text[slot_text(slot)].slots.push_back(slot);
  }
  for (const std::uint32_t key : keys) {
    by_text[key_text(key)].keys.push_back(key);
  }
  slots.clear();
  keys.clear();
  for (const auto& [text, same] : by_text) {
    if (same.slots.size() == 1 && same.keys.size() == 1) {
      pair(same.slots[0], same.keys[0], true, aligned);
      continue;
    }
    slots.insert(slots.end(), same.slots.begin(), same.slots.end());
    keys.insert(keys.end(), same.keys.begin(), same.keys.end());
  }
}

void Aligner::pair(std::uint32_t slot_name, std::uint32_t key, bool exact, Aligned& aligned) const {
  if (agrees(task_, slot_name, key)) {
    aligned.fits.push_back({slot_name, key, exact});
    aligned.score += task_.slot_names[slot_name].slots.size();
  } else {
    aligned.clashes.push_back({slot_name, key, exact});
  }
}

}  // namespace onnx_external
