#include "mapping/key_prefix.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "mapping/advice.h"
#include "mapping/aligner.h"
#include "mapping/own_prefix.h"
#include "mapping/prefix_candidates.h"

namespace onnx_external {
namespace {

using Kind = KeyPrefix::Kind;
using Candidate = PrefixCandidate;

std::string spoken(const KeyPrefix& key_prefix) {
  switch (key_prefix.kind) {
    case Kind::kNone:
      return "the keys unchanged";
    case Kind::kRemove:
      return "the keys without their prefix " + quote(key_prefix.prefix);
    case Kind::kAdd:
      return "the keys with the prefix " + quote(key_prefix.prefix) + " added";
  }
  return "";
}

// Returns the remedy that chooses a prefix if there is a single graph.
Remedy choice_of(const KeyPrefix& key_prefix) {
  const std::string when = "to use " + spoken(key_prefix);
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
    const Aligned aligned = aligner.apply(candidates[i], AlignDetail::kFits);
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
// name, which come first. If only names match under such a prefix, and not shapes, it is still the
// one that is meant.
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
    Aligned other = aligner.apply(candidate, AlignDetail::kFits);
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

// The choices for one of several graphs. An option would choose for all graphs, so only the part in
// front of this graph's name can be given.
std::vector<Remedy> choices_among_names(const MappingTask& task,
                                        const std::vector<const Aligned*>& all) {
  std::vector<Remedy> choices;
  for (const Aligned* one : all) {
    const auto before = before_own_name(task, one->key_prefix.kind, one->key_prefix.prefix);
    if (before && !before->empty()) {
      choices.push_back({RemedyOption::kPrefix, std::string(before->substr(0, before->size() - 1)),
                         "to use the keys under " + quote(one->key_prefix.prefix)});
    }
  }
  return choices;
}

tl::unexpected<Error> refuse_rivals(const MappingTask& task, const Aligned& best,
                                    const std::vector<Rival>& rivals) {
  std::string message =
      "the keys match the graph in more than one way: " + example(task, best, rivals.front().slot);
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
    message += "; with several graphs, each graph uses the keys under its own name (here " +
               quote(std::string(task.own_name) + ".") +
               "); rename each graph to the prefix of its keys, or save the graphs one by one, "
               "each with a prefix";
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
                                         : aligner.apply(*own.front(), AlignDetail::kEverything);
}

}  // namespace

std::string key_prefix_text(const KeyPrefix& key_prefix) {
  return key_prefix.kind == Kind::kNone
             ? ""
             : (key_prefix.kind == Kind::kRemove ? "-" : "+") + key_prefix.prefix;
}

Result<Aligned> choose_key_prefix(const MappingTask& task) {
  Aligner aligner(task);
  if (auto plain = aligner.apply(KeyPrefix{}, AlignDetail::kEverything); aligner.fills_all(plain)) {
    return plain;
  }
  const PrefixCandidates list = aligner.candidates();
  const std::vector<Candidate>& candidates = list.kept();
  if (candidates.empty()) {
    return Aligned{};
  }
  const Comparison found = compare(aligner, candidates);
  Aligned best = aligner.apply(candidates[found.best], AlignDetail::kEverything);
  if (best.score > 0) {
    const auto rivals =
        find_rivals(task, aligner, possible_rivals(task, candidates, found.compared, best), best);
    if (!rivals.empty()) {
      return choose_among(task, aligner, std::move(best), rivals);
    }
    if (list.most_left_out() * 2 >= best.score) {
      return fail_with(ErrorCode::kAmbiguous,
                       "the keys match the graph under more prefixes than can be compared",
                       {choice_of(best.key_prefix)});
    }
  }
  return best;
}

Aligned best_key_prefix(const MappingTask& task) {
  Aligner aligner(task);
  const PrefixCandidates list = aligner.candidates();
  const std::vector<Candidate>& candidates = list.kept();
  return candidates.empty() ? Aligned{}
                            : aligner.apply(candidates[compare(aligner, candidates).best],
                                            AlignDetail::kEverything);
}

}  // namespace onnx_external
