#include "mapping/key_prefix.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/advice.h"
#include "mapping/name_index.h"
#include "mapping/name_refinement.h"
#include "mapping/own_prefix.h"
#include "mapping/prefix_candidates.h"

namespace onnx_external {
namespace {

using Kind = KeyPrefix::Kind;
using Candidate = PrefixCandidate;

// How many pairs of a bucket are looked at to find out whether any of them fits.
constexpr std::size_t kMaxLookedAt = 8;

// How much to find out about a key prefix. Every prefix under which two names match is tried, so
// kFits takes time proportional to the names that match.
enum class Detail : std::uint8_t {
  kFits,        // Aligned::fits and its score
  kEverything,  // also clashes and conflicts
};

class Aligner {
 public:
  explicit Aligner(const MappingTask& task)
      : task_(task), keys_(usable_keys(task)), slots_(open_slots(task)) {}

  // The prefixes under which at least one name matches another, the one with most matches first.
  // They are found by looking up each suffix at a component boundary in the other side's index.
  [[nodiscard]] PrefixCandidates candidates() {
    PrefixCandidates list;
    Candidate none;
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

  [[nodiscard]] Aligned apply(const KeyPrefix& key_prefix, Detail detail) {
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
      std::sort(pairs->begin(), pairs->end(), [](const AlignedPair& a, const AlignedPair& b) {
        return a.slot_name < b.slot_name;
      });
    }
    return aligned;
  }
  [[nodiscard]] Aligned apply(const Candidate& candidate, Detail detail) {
    return apply(KeyPrefix{candidate.kind, std::string(candidate.prefix)}, detail);
  }

  // True if every open slot gets the key of its own name, so that no prefix can be meant.
  [[nodiscard]] bool fills_all(const Aligned& aligned) const {
    const auto is_exact = [](const AlignedPair& pair) { return pair.exact; };
    const bool all = aligned.score > 0 && aligned.clashes.empty() && aligned.conflicts.empty() &&
                     aligned.fits.size() == slots_.all().size();
    return all && (aligned.fits.size() == keys_.all().size() ||
                   std::all_of(aligned.fits.begin(), aligned.fits.end(), is_exact));
  }

 private:
  void count(std::span<const std::uint32_t> slot_names, std::span<const std::uint32_t> keys,
             Candidate& candidate) const {
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

  // Adds the prefixes of sorted names. The names under a prefix follow one another, so each prefix
  // is complete once a name does not begin with it, and only those of one name are open.
  void add_candidates(std::span<const NameIndex::Entry> sorted, NameIndex& others, Kind kind,
                      PrefixCandidates& list) {
    std::vector<Candidate> open;  // by ascending length
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
                                  [at](const Candidate& c) { return c.prefix.size() >= at; });
        if (place == open.end() || place->prefix.size() > at) {
          place = open.insert(place, Candidate{.prefix = entry.name.substr(0, at), .kind = kind});
        }
        const std::span<const std::uint32_t> own(&entry.id, 1);
        kind == Kind::kRemove ? count(met, own, *place) : count(own, met, *place);
      }
    }
    for (const Candidate& candidate : open) {
      list.add(candidate);
    }
  }

  void settle_bucket(const std::vector<std::uint32_t>& members,
                     std::span<const std::uint32_t> bucket, Detail detail, Aligned& aligned) {
    const bool add = aligned.key_prefix.kind == Kind::kAdd;
    if (bucket.size() == 1 && members.size() == 1) {
      const std::uint32_t slot_name = add ? members[0] : bucket[0];
      const std::uint32_t key = add ? bucket[0] : members[0];
      pair(slot_name, key,
           tail(true, slot_name, aligned.key_prefix) == tail(false, key, aligned.key_prefix),
           aligned);
    } else if (detail == Detail::kFits && bucket.size() > members.size()) {
      settle_few(members, bucket, aligned);
    } else {
      std::vector<std::uint32_t> met(bucket.begin(), bucket.end());
      settle(add ? members : met, add ? met : members, aligned);
    }
  }

  // The name after the prefix was removed or added.
  [[nodiscard]] std::string_view tail(bool is_slot, std::uint32_t id,
                                      const KeyPrefix& key_prefix) const {
    const std::string_view name = is_slot ? task_.slot_names[id].name : task_.key_names[id].name;
    const bool shortened =
        is_slot ? key_prefix.kind == Kind::kAdd : key_prefix.kind == Kind::kRemove;
    return shortened ? name.substr(key_prefix.prefix.size()) : name;
  }

  // Pairs names with the same refined form: first those that are spelled as in the graph, then
  // equal names, then the last slot and the last key if only these two are left.
  void settle(std::vector<std::uint32_t> slots, std::vector<std::uint32_t> keys,
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

  // Finds the same pairs as settle() in time proportional to the members. The bucket has more
  // entries, so the last step of settle() never applies.
  void settle_few(const std::vector<std::uint32_t>& members, std::span<const std::uint32_t> bucket,
                  Aligned& aligned) {
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

std::string spoken(const KeyPrefix& key_prefix) {
  switch (key_prefix.kind) {
    case Kind::kNone:
      return "the keys as they are";
    case Kind::kRemove:
      return "the keys without their prefix " + quote(key_prefix.prefix);
    case Kind::kAdd:
      return "the keys with the prefix " + quote(key_prefix.prefix) + " added";
  }
  return "";
}

// How to choose the prefix of a graph alone.
Remedy choice_of(const KeyPrefix& key_prefix) {
  const std::string when = "to take " + spoken(key_prefix);
  switch (key_prefix.kind) {
    case Kind::kNone:
      break;
    case Kind::kRemove:
      return {RemedyOption::kPrefix, key_prefix.prefix.substr(0, key_prefix.prefix.size() - 1),
              when};
    case Kind::kAdd:
      return {RemedyOption::kRename, "s|^|" + key_prefix.prefix + "|", when};
  }
  return {RemedyOption::kPrefix, "", when};
}

// Decides whether another key prefix fits about as well as the best one.
class Rivalry {
 public:
  Rivalry(const MappingTask& task, const Aligned& best)
      : task_(task), score_(best.score), adds_(best.key_prefix.kind == Kind::kAdd) {
    for (const AlignedPair& pair : best.fits) {
      keys_.insert(pair.key);
      slots_.insert(pair.slot_name);
    }
  }

  // Returns a slot that both prefixes fill, if `other` fills at least half as many slots from
  // keys that the best one leaves over. A key that the best prefix pairs with a slot of its own
  // name is no evidence for `other`. But if both add a prefix, `other` may use the same keys for
  // slots that the best one leaves open; then one of these is returned.
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
      } else if (adds_ && other.key_prefix.kind == Kind::kAdd && !slots_.contains(pair.slot_name)) {
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
      return spoken(aligned.key_prefix) + " (" + quote(task.keys.keys[pair.key].name) + " for " +
             quote(task.first_slot(slot_name).name) + ", " + std::to_string(aligned.score) +
             " slots)";
    }
  }
  return spoken(aligned.key_prefix);
}

struct Comparison {
  std::size_t best = 0;      // the first one of the highest score
  std::size_t compared = 0;  // this many from the start can be the best, or rival it
};

// Tries the candidates in order of their matches, until no other can fill more slots. If none fills
// a slot, the one under which most names match is the best.
Comparison compare(Aligner& aligner, const std::vector<Candidate>& candidates) {
  Comparison found;
  std::uint64_t score = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0 && candidates[i].agreeing <= score) {
      break;
    }
    const Aligned aligned = aligner.apply(candidates[i], Detail::kFits);
    if (aligned.score > score) {
      found.best = i;
      score = aligned.score;
    }
  }
  const auto rivals = [score](const Candidate& c) {
    return c.agreeing > 0 && c.agreeing * 2 >= score;
  };
  const auto end = std::find_if_not(candidates.begin() + 1, candidates.end(), rivals);
  found.compared = static_cast<std::size_t>(end - candidates.begin());
  return found;
}

// A key prefix that fits about as well as the best one, and a slot that both fill.
struct Rival {
  Aligned aligned;
  std::uint32_t slot = 0;
};

bool is_own(const MappingTask& task, Kind kind, std::string_view prefix) {
  return before_own_name(task, kind, prefix).has_value();
}

// Prefixes that may rival the best one: the first `compared`, and those that are the graph's own
// name, which come first. Where names alone meet under such a prefix, it is meant all the same.
std::vector<Candidate> possible_rivals(const MappingTask& task, std::span<const Candidate> all,
                                       std::size_t compared, const Aligned& best) {
  std::vector<Candidate> own;
  std::vector<Candidate> others;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind == best.key_prefix.kind && all[i].prefix == best.key_prefix.prefix) {
      continue;
    }
    if (is_own(task, all[i].kind, all[i].prefix) && all[i].names * 2 >= best.score) {
      own.push_back(all[i]);
    } else if (i < compared) {
      others.push_back(all[i]);
    }
  }
  own.insert(own.end(), others.begin(), others.end());
  return own;
}

// At most kMaxListed of them.
std::vector<Rival> find_rivals(const MappingTask& task, Aligner& aligner,
                               std::span<const Candidate> candidates, const Aligned& best) {
  const Rivalry rivalry(task, best);
  std::vector<Rival> rivals;
  for (const Candidate& candidate : candidates) {
    if (rivals.size() == kMaxListed) {
      break;
    }
    Aligned other = aligner.apply(candidate, Detail::kFits);
    std::optional<std::uint32_t> slot = rivalry.contested(other);
    if (!slot && best.key_prefix.kind == Kind::kRemove &&
        is_own(task, candidate.kind, candidate.prefix)) {
      slot = best.fits.front().slot_name;
    }
    if (slot) {
      rivals.push_back({std::move(other), *slot});
    }
  }
  return rivals;
}

// The choices of one of several graphs. An option would choose for all of them, so only what
// stands before the name of this one can be given.
std::vector<Remedy> choices_among_names(const MappingTask& task,
                                        const std::vector<const Aligned*>& all) {
  std::vector<Remedy> choices;
  for (const Aligned* one : all) {
    const auto before = before_own_name(task, one->key_prefix.kind, one->key_prefix.prefix);
    if (before && !before->empty()) {
      choices.push_back({RemedyOption::kPrefix, std::string(before->substr(0, before->size() - 1)),
                         "to take the keys under " + quote(one->key_prefix.prefix)});
    }
  }
  return choices;
}

tl::unexpected<Error> refuse_rivals(const MappingTask& task, const Aligned& best,
                                    const std::vector<Rival>& rivals) {
  std::string message =
      "the keys fit the graph in more than one way: " + example(task, best, rivals.front().slot);
  std::vector<const Aligned*> all{&best};
  for (const Rival& rival : rivals) {
    message += ", or " + example(task, rival.aligned, rival.slot);
    all.push_back(&rival.aligned);
  }
  std::vector<Remedy> choices;
  if (task.own_name.empty()) {
    std::transform(all.begin(), all.end(), std::back_inserter(choices),
                   [](const Aligned* one) { return choice_of(one->key_prefix); });
    return fail_with(ErrorCode::kAmbiguous, std::move(message), std::move(choices));
  }
  choices = choices_among_names(task, all);
  if (choices.empty()) {
    message += "; of several graphs, each takes the keys under its own name (here " +
               quote(std::string(task.own_name) + ".") +
               "): give the graphs the names of their keys, or save them one by one, each with a "
               "prefix";
  }
  return fail_with(ErrorCode::kAmbiguous, std::move(message), std::move(choices));
}

// The prefix that is the graph's own name, if exactly one of those that fit is.
Result<Aligned> choose_among(const MappingTask& task, Aligner& aligner, Aligned best,
                             const std::vector<Rival>& rivals) {
  std::vector<const KeyPrefix*> own;
  const auto add_own = [&](const KeyPrefix& key_prefix) {
    if (is_own(task, key_prefix.kind, key_prefix.prefix)) {
      own.push_back(&key_prefix);
    }
  };
  add_own(best.key_prefix);
  for (const Rival& rival : rivals) {
    add_own(rival.aligned.key_prefix);
  }
  if (own.size() != 1) {
    return refuse_rivals(task, best, rivals);
  }
  return own.front() == &best.key_prefix ? std::move(best)
                                         : aligner.apply(*own.front(), Detail::kEverything);
}

}  // namespace

std::string key_prefix_text(const KeyPrefix& key_prefix) {
  return key_prefix.kind == Kind::kNone
             ? ""
             : (key_prefix.kind == Kind::kRemove ? "-" : "+") + key_prefix.prefix;
}

Result<Aligned> choose_key_prefix(const MappingTask& task) {
  Aligner aligner(task);
  if (auto plain = aligner.apply(KeyPrefix{}, Detail::kEverything); aligner.fills_all(plain)) {
    return plain;
  }
  const PrefixCandidates list = aligner.candidates();
  const std::vector<Candidate>& candidates = list.kept();
  if (candidates.empty()) {
    return Aligned{};
  }
  const Comparison found = compare(aligner, candidates);
  Aligned best = aligner.apply(candidates[found.best], Detail::kEverything);
  if (best.score > 0) {
    const auto rivals =
        find_rivals(task, aligner, possible_rivals(task, candidates, found.compared, best), best);
    if (!rivals.empty()) {
      return choose_among(task, aligner, std::move(best), rivals);
    }
    if (list.most_left_out() * 2 >= best.score) {
      return fail_with(ErrorCode::kAmbiguous,
                       "the keys fit the graph under more prefixes than are compared",
                       {choice_of(best.key_prefix)});
    }
  }
  return best;
}

Aligned best_key_prefix(const MappingTask& task) {
  Aligner aligner(task);
  const PrefixCandidates list = aligner.candidates();
  const std::vector<Candidate>& candidates = list.kept();
  return candidates.empty()
             ? Aligned{}
             : aligner.apply(candidates[compare(aligner, candidates).best], Detail::kEverything);
}

}  // namespace onnx_external
