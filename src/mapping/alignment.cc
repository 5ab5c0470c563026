#include "mapping/alignment.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/advice.h"
#include "mapping/name_index.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

using Kind = Alignment::Kind;

// How much speaks for a candidate; `agreeing` is never below the score that it will get.
struct Evidence {
  std::uint64_t agreeing = 0;
  std::uint64_t names = 0;
};

struct Candidate {
  Alignment alignment;
  Evidence evidence;
};

// Enough to tell a bucket of names that refine alike from one where something fits.
constexpr std::size_t kMaxLookedAt = 8;

class Aligner {
 public:
  explicit Aligner(const MappingTask& task)
      : task_(task), keys_(index_keys(task)), slots_(index_slots(task)) {}

  // Every prefix that makes at least one name meet another, found by looking each suffix at a
  // component boundary up in the other side's index.
  [[nodiscard]] std::vector<Candidate> candidates() {
    Evidence none;
    NameMap<Evidence> removed;
    NameMap<Evidence> added;
    const bool only_none = task_.options.match == Match::kExact ||
                           (task_.options.prefix && task_.options.prefix->empty());
    for (const NameIndex::Entry& key : keys_.all()) {
      count(slots_.refined_as(key.refined), {&key.id, 1}, none);
      for (const std::size_t at : only_none ? std::vector<std::size_t>() : boundaries(key.name)) {
        const auto met = slots_.refined_as(key.refined.substr(at));
        if (!met.empty()) {
          count(met, {&key.id, 1}, removed[key.name.substr(0, at)]);
        }
      }
    }
    for (const NameIndex::Entry& slot :
         only_none ? std::span<const NameIndex::Entry>() : slots_.all()) {
      for (const std::size_t at : boundaries(slot.name)) {
        const auto met = keys_.refined_as(slot.refined.substr(at));
        if (!met.empty()) {
          count({&slot.id, 1}, met, added[slot.name.substr(0, at)]);
        }
      }
    }
    return sorted(none, removed, added);
  }

  [[nodiscard]] Aligned apply(const Alignment& alignment) {
    Aligned aligned;
    aligned.alignment = alignment;
    const bool add = alignment.kind == Kind::kAdd;
    NameIndex& walked = add ? slots_ : keys_;
    NameIndex& met = add ? keys_ : slots_;
    // Grouped by the bucket they meet: names that refine alike are settled together.
    std::vector<std::pair<std::span<const std::uint32_t>, std::uint32_t>> hits;
    hits.reserve(walked.all().size());
    for (const NameIndex::Entry& entry : walked.under(alignment.prefix)) {
      if (entry.name.size() == alignment.prefix.size()) {
        continue;
      }
      const auto bucket = met.refined_as(entry.refined.substr(alignment.prefix.size()));
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
      if (bucket.size() == 1 && members.size() == 1) {
        pair_only(add ? members[0] : bucket[0], add ? bucket[0] : members[0], aligned);
        continue;
      }
      settle(add ? members : std::vector<std::uint32_t>(bucket.begin(), bucket.end()),
             add ? std::vector<std::uint32_t>(bucket.begin(), bucket.end()) : members, aligned);
    }
    // In the order of the graph, so that messages list what a reader meets first.
    for (std::vector<AlignedPair>* pairs : {&aligned.fits, &aligned.clashes}) {
      std::sort(pairs->begin(), pairs->end(), [](const AlignedPair& a, const AlignedPair& b) {
        return a.slot_name < b.slot_name;
      });
    }
    return aligned;
  }

  // True when every open slot has got the key of its own name: nothing else is meant then.
  [[nodiscard]] bool fills_all(const Aligned& aligned) const {
    const auto is_exact = [](const AlignedPair& pair) { return pair.exact; };
    const bool all = aligned.score > 0 && aligned.clashes.empty() && aligned.conflicts.empty() &&
                     aligned.fits.size() == slots_.all().size();
    return all && (aligned.fits.size() == keys_.all().size() ||
                   std::all_of(aligned.fits.begin(), aligned.fits.end(), is_exact));
  }

 private:
  static NameIndex index_keys(const MappingTask& task) {
    std::vector<NameIndex::Entry> entries;
    entries.reserve(task.key_names.size());
    for (std::uint32_t i = 0; i < task.key_names.size(); ++i) {
      if (task.key_names[i].usable && !task.key_names[i].name.empty()) {
        entries.push_back({task.key_names[i].name, task.key_names[i].refined, i});
      }
    }
    return NameIndex(std::move(entries));
  }

  static NameIndex index_slots(const MappingTask& task) {
    std::vector<NameIndex::Entry> entries;
    entries.reserve(task.slot_names.size());
    for (std::uint32_t i = 0; i < task.slot_names.size(); ++i) {
      if (task.slot_names[i].open) {
        entries.push_back({task.slot_names[i].name, task.slot_names[i].refined, i});
      }
    }
    return NameIndex(std::move(entries));
  }

  void count(std::span<const std::uint32_t> slot_names, std::span<const std::uint32_t> keys,
             Evidence& evidence) const {
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
    evidence.names += most;
    evidence.agreeing += agreeing;
  }

  static std::vector<Candidate> sorted(const Evidence& none, const NameMap<Evidence>& removed,
                                       const NameMap<Evidence>& added) {
    std::vector<Candidate> all;
    if (none.names > 0) {
      all.push_back({{Kind::kNone, ""}, none});
    }
    for (const auto& [prefix, evidence] : removed) {
      all.push_back({{Kind::kRemove, std::string(prefix)}, evidence});
    }
    for (const auto& [prefix, evidence] : added) {
      all.push_back({{Kind::kAdd, std::string(prefix)}, evidence});
    }
    const auto order = [](const Candidate& c) {
      return std::tuple(~c.evidence.agreeing, ~c.evidence.names, c.alignment.kind,
                        c.alignment.prefix.size(), std::string_view(c.alignment.prefix));
    };
    std::sort(all.begin(), all.end(),
              [&](const Candidate& a, const Candidate& b) { return order(a) < order(b); });
    return all;
  }

  // The name that stays when the alignment has taken or given its prefix.
  [[nodiscard]] std::string_view tail(bool is_slot, std::uint32_t id,
                                      const Alignment& alignment) const {
    const std::string_view name = is_slot ? task_.slot_names[id].name : task_.key_names[id].name;
    const bool shortened = is_slot ? alignment.kind == Kind::kAdd : alignment.kind == Kind::kRemove;
    return shortened ? name.substr(alignment.prefix.size()) : name;
  }

  void pair_only(std::uint32_t slot_name, std::uint32_t key, Aligned& aligned) const {
    const bool exact =
        tail(true, slot_name, aligned.alignment) == tail(false, key, aligned.alignment);
    pair(slot_name, key, exact, aligned);
  }

  // Pairs names that refine alike: the graph's own spelling first, then equal names, then what is
  // left if it is one of each.
  void settle(std::vector<std::uint32_t> slots, std::vector<std::uint32_t> keys,
              Aligned& aligned) const {
    const Alignment& alignment = aligned.alignment;
    pair_equal(
        slots, keys, aligned,
        [&](std::uint32_t s) { return std::string_view(task_.first_slot(s).name); },
        [&](std::uint32_t k) { return std::string_view(task_.keys.keys[k].name); });
    pair_equal(
        slots, keys, aligned, [&](std::uint32_t s) { return tail(true, s, alignment); },
        [&](std::uint32_t k) { return tail(false, k, alignment); });
    if (slots.size() == 1 && keys.size() == 1) {
      pair(slots[0], keys[0], false, aligned);
    } else if (!slots.empty() && !keys.empty()) {
      aligned.conflicts.push_back({std::move(slots), std::move(keys)});
    }
  }

  // Pairs slots and keys whose texts are equal and occur once on each side, and removes them.
  template <typename SlotText, typename KeyText>
  void pair_equal(std::vector<std::uint32_t>& slots, std::vector<std::uint32_t>& keys,
                  Aligned& aligned, const SlotText& slot_text, const KeyText& key_text) const {
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

  void pair(std::uint32_t slot_name, std::uint32_t key, bool exact, Aligned& aligned) const {
    if (agrees(task_, slot_name, key)) {
      aligned.fits.push_back({slot_name, key, exact});
      aligned.score += task_.slot_names[slot_name].slots.size();
    } else {
      aligned.clashes.push_back({slot_name, key, exact});
    }
  }

  const MappingTask& task_;
  NameIndex keys_;
  NameIndex slots_;
};

std::string spoken(const Alignment& alignment) {
  switch (alignment.kind) {
    case Kind::kNone:
      return "the keys as they are";
    case Kind::kRemove:
      return "the keys without their prefix " + quote(alignment.prefix);
    case Kind::kAdd:
      return "the keys with the prefix " + quote(alignment.prefix) + " added";
  }
  return "";
}

void add_choice(const Alignment& alignment, std::vector<Remedy>& remedies) {
  const std::string when = "to take " + spoken(alignment);
  switch (alignment.kind) {
    case Kind::kNone:
      remedies.push_back({"prefix", "", when});
      break;
    case Kind::kRemove:
      remedies.push_back({"prefix", alignment.prefix.substr(0, alignment.prefix.size() - 1), when});
      break;
    case Kind::kAdd:
      remedies.push_back({"rename", "s|^|" + alignment.prefix + "|", when});
      break;
  }
}

// Tells whether another alignment fits about as well as the best one.
class Rivalry {
 public:
  Rivalry(const MappingTask& task, const Aligned& best)
      : task_(task), score_(best.score), adds_(best.alignment.kind == Kind::kAdd) {
    for (const AlignedPair& pair : best.fits) {
      keys_.insert(pair.key);
      slots_.insert(pair.slot_name);
    }
  }

  // A slot that both fill, when `other` fills at least half as many from keys which the best leaves
  // over. A key that the best uses for a slot of its own name is no evidence for anything else; but
  // keys that get a prefix may get another one as well, for slots that the best leaves open: then
  // one of these.
  [[nodiscard]] std::optional<std::uint32_t> contested(const Aligned& other) const {
    std::optional<std::uint32_t> shared;
    std::optional<std::uint32_t> elsewhere;
    std::uint64_t filled = 0;
    std::uint64_t filled_elsewhere = 0;
    for (const AlignedPair& pair : other.fits) {
      const std::uint64_t slots = task_.slot_names[pair.slot_name].slots.size();
      if (!keys_.contains(pair.key)) {
        filled += slots;
        if (!shared && slots_.contains(pair.slot_name)) {
          shared = pair.slot_name;
        }
      } else if (adds_ && other.alignment.kind == Kind::kAdd && !slots_.contains(pair.slot_name)) {
        filled_elsewhere += slots;
        elsewhere = elsewhere ? elsewhere : pair.slot_name;
      }
    }
    if (filled * 2 >= score_ && shared) {
      return shared;
    }
    return filled_elsewhere * 2 >= score_ ? elsewhere : std::nullopt;
  }

 private:
  const MappingTask& task_;
  std::uint64_t score_;
  bool adds_;
  std::unordered_set<std::uint32_t> keys_;
  std::unordered_set<std::uint32_t> slots_;
};

std::string example(const MappingTask& task, const Aligned& aligned, std::uint32_t slot_name) {
  for (const AlignedPair& pair : aligned.fits) {
    if (pair.slot_name == slot_name) {
      return spoken(aligned.alignment) + " (" + quote(task.keys.keys[pair.key].name) + " for " +
             quote(task.first_slot(slot_name).name) + ", " + std::to_string(aligned.score) +
             " slots)";
    }
  }
  return spoken(aligned.alignment);
}

// The candidates that can be the best or rival it, in order of evidence; when none fills a slot,
// the one under which most names meet.
std::vector<Aligned> worth_comparing(Aligner& aligner) {
  std::vector<Aligned> all;
  if (auto plain = aligner.apply({}); aligner.fills_all(plain)) {
    all.push_back(std::move(plain));
    return all;
  }
  std::uint64_t best = 0;
  for (const Candidate& candidate : aligner.candidates()) {
    const std::uint64_t at_most = candidate.evidence.agreeing;
    if (!all.empty() && (at_most == 0 || at_most * 2 < best)) {
      break;
    }
    all.push_back(aligner.apply(candidate.alignment));
    best = std::max(best, all.back().score);
  }
  return all;
}

Status refuse_rivals(const MappingTask& task, const std::vector<Aligned>& all,
                     const Aligned& best) {
  const Rivalry rivalry(task, best);
  std::string fits;
  std::vector<Remedy> choices;
  std::size_t listed = 0;
  for (const Aligned& other : all) {
    const std::optional<std::uint32_t> slot =
        &other == &best ? std::nullopt : rivalry.contested(other);
    if (!slot || listed == kMaxListed) {
      continue;
    }
    if (listed++ == 0) {
      fits = example(task, best, *slot);
      add_choice(best.alignment, choices);
    }
    fits += ", or " + example(task, other, *slot);
    add_choice(other.alignment, choices);
  }
  if (listed == 0) {
    return {};
  }
  return fail_with(ErrorCode::kAmbiguous, "the keys fit the graph in more than one way: " + fits,
                   std::move(choices));
}

}  // namespace

std::string alignment_text(const Alignment& alignment) {
  switch (alignment.kind) {
    case Kind::kNone:
      return "";
    case Kind::kRemove:
      return "-" + alignment.prefix;
    case Kind::kAdd:
      return "+" + alignment.prefix;
  }
  return "";
}

Result<Aligned> choose_alignment(const MappingTask& task) {
  Aligner aligner(task);
  std::vector<Aligned> all = worth_comparing(aligner);
  if (all.empty()) {
    return Aligned{};
  }
  const auto best = std::max_element(
      all.begin(), all.end(), [](const Aligned& a, const Aligned& b) { return a.score < b.score; });
  if (best->score > 0) {
    if (Status status = refuse_rivals(task, all, *best); !status) {
      return fail(std::move(status).error());
    }
  }
  return std::move(*best);
}

}  // namespace onnx_external
