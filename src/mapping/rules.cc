#include "mapping/rules.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/nearest_names.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/advice.h"
#include "mapping/causes.h"
#include "mapping/name_index.h"
#include "mapping/name_refinement.h"
#include "mapping/unfit_keys.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

// "; did you mean 'a', 'b'", with the nearest names of slots or keys, or "".
template <typename Named>
std::string did_you_mean(std::string_view name, const std::vector<Named>& all) {
  std::set<std::string_view> distinct;
  for (const Named& one : all) {
    distinct.insert(one.name);
  }
  const std::vector<std::string_view> names(distinct.begin(), distinct.end());
  std::vector<std::string> nearest;
  for (const std::size_t place : NearestNames().of(name, names, 3)) {
    nearest.emplace_back(names[place]);
  }
  return nearest.empty() ? "" : "; did you mean " + quote_list(nearest, 3);
}

Status check_fillable(const SlotName& slot, const std::string& where) {
  switch (slot.role) {
    case SlotRole::kCallers:
      return fail(ErrorCode::kInvalidArgument,
                  where + ": it is an input that the caller supplies, not a slot");
    case SlotRole::kKept:
      return fail(ErrorCode::kInvalidArgument, where + ": it keeps the graph's data");
    case SlotRole::kFused:
      return fail(ErrorCode::kInvalidArgument,
                  where + ": the exporter folded a BatchNorm into it, so no key has its value");
    case SlotRole::kByName:
    case SlotRole::kExplicit:
    case SlotRole::kNone:
      break;
  }
  return {};
}

// Checks one entry of `option` and fills its slot.
Status fill_entry(const MapEntry& entry, std::string_view option, Rule rule, MappingTask& task) {
  const std::string where = std::string(option) + " " + quote(entry.slot);
  const auto slot_name = task.slot_name_called(entry.slot);
  if (!slot_name) {
    return fail(ErrorCode::kNotFound, where + ": the graph has no such slot" +
                                          did_you_mean(entry.slot, task.graph.slots));
  }
  const auto key = task.key_by_name.find(entry.key);
  if (!key) {
    return fail(ErrorCode::kNotFound, where + ": the checkpoint has no key " + quote(entry.key) +
                                          did_you_mean(entry.key, task.keys.keys));
  }
  const std::optional<Fill>& old = task.fills[task.slot_names[*slot_name].slots.front()];
  if (old && old->key == *key && old->recipe == entry.recipe) {
    return {};
  }
  if (old) {
    return fail(ErrorCode::kAmbiguous,
                where + ": two keys for one slot: " + quote(task.keys.keys[old->key].name) +
                    " and " + quote(entry.key));
  }
  TRY(check_fillable(task.slot_names[*slot_name], where));
  if (auto shape = apply_recipe(entry.recipe, task.keys.keys[*key].shape); !shape) {
    return fail_in(where, std::move(shape).error());
  }
  if (!agrees(task, *slot_name, *key, entry.recipe)) {
    return fail(ErrorCode::kMismatch,
                std::string(option) + ": " + clash_text(task, *slot_name, *key, entry.recipe));
  }
  task.fill(*slot_name, *key, rule, entry.recipe);
  return {};
}

Rule rule_of(const AlignedPair& pair, const KeyPrefix& key_prefix, const MappingTask& task) {
  switch (key_prefix.kind) {
    case KeyPrefix::Kind::kAdd:
      return Rule::kPrefixAdded;
    case KeyPrefix::Kind::kRemove:
      return Rule::kPrefixRemoved;
    case KeyPrefix::Kind::kNone:
      break;
  }
  if (!task.option_alignment.empty()) {
    return Rule::kPrefixRemoved;
  }
  return pair.exact ? Rule::kExact : Rule::kRefined;
}

Status refuse_conflict(const PrefixConflict& conflict, const MappingTask& task) {
  std::vector<std::string> slots;
  std::vector<std::string> keys;
  for (const std::uint32_t slot : conflict.slot_names) {
    slots.push_back(task.first_slot(slot).name);
  }
  for (const std::uint32_t key : conflict.keys) {
    keys.push_back(task.keys.keys[key].name);
  }
  return fail_with(ErrorCode::kAmbiguous,
                   "names that differ only in dots and underscores: slots " +
                       quote_list(slots, kMaxListed) + ", keys " + quote_list(keys, kMaxListed),
                   {{RemedyOption::kMap, "FILE", "to say which is which"}});
}

std::vector<bool> keys_that_meet(const Aligned& aligned, const MappingTask& task) {
  std::vector<bool> meet = task.key_used;
  for (const std::vector<AlignedPair>* pairs : {&aligned.fits, &aligned.clashes}) {
    for (const AlignedPair& pair : *pairs) {
      meet[pair.key] = true;
    }
  }
  return meet;
}

Status refuse_clashes(const Aligned& aligned, const MappingTask& task) {
  std::vector<ErrorItem> items;
  bool input = false;
  bool castable = false;
  for (const AlignedPair& pair : aligned.clashes) {
    const Slot& slot = task.first_slot(pair.slot_name);
    const MappingKey& key = task.keys.keys[pair.key];
    items.push_back(item_of(slot, "but key " + quote(key.name) + " is " + form_of(key)));
    input |= slot.kind == SlotKind::kGraphInput && slot.name.find('.') == std::string::npos;
    castable |= agrees_once_cast(task, pair.slot_name, pair.key);
  }
  const AlignedPair& first = aligned.clashes.front();
  std::string message =
      clash_text(task, first.slot_name, first.key, task.recipe_of(first.slot_name)) + " (" +
      std::to_string(aligned.clashes.size()) + " of " +
      std::to_string(aligned.fits.size() + aligned.clashes.size()) + " names that match); ";
  // Floats of a different type show that this is the graph's checkpoint, whatever the names of its
  // keys are. Floats that other keys scale need more than a conversion.
  std::string cause = castable ? scales_text(task, keys_that_meet(aligned, task)) : cause_of(task);
  castable = castable && cause.empty();
  cause = castable || !cause.empty() ? cause : cut_among_ranks(task, aligned);
  message += cause.empty() ? "use the checkpoint that belongs to this graph" : cause;
  ErrorDetails details;
  details.lists.push_back({ErrorKind::kOtherType, "", std::move(items)});
  if (castable) {
    details.remedies.push_back(
        {RemedyOption::kDtype, "slot", "to convert its floats to the types in the graph"});
  }
  if (input) {
    details.remedies.push_back(
        {RemedyOption::kInputs, "NAMES", "to list the inputs that the caller supplies"});
  }
  return fail(Error{ErrorCode::kMismatch, std::move(message),
                    std::make_shared<const ErrorDetails>(std::move(details))});
}

struct SuffixPair {
  std::uint32_t slot_name = 0;
  std::uint32_t key = 0;
  std::size_t length = 0;  // of the common suffix: the shorter name
};

// All pairs where the shorter refined name is a suffix of the other at a component boundary.
std::vector<SuffixPair> suffix_pairs(const MappingTask& task) {
  std::vector<NameIndex::Entry> slots = open_slots(task);
  std::erase_if(slots, [&](const auto& slot) { return task.first_slot(slot.id).has_data; });
  NameIndex slot_index(std::move(slots));
  NameIndex key_index(usable_keys(task));
  std::vector<SuffixPair> pairs;
  const auto add = [&](std::uint32_t slot, std::uint32_t key, std::size_t length) {
    if (agrees(task, slot, key)) {
      pairs.push_back({slot, key, length});
    }
  };
  const auto meet = [](const NameIndex& longer, NameIndex& shorter, const auto& take) {
    // Two names with the same refined form cannot be unique, so at most two are listed.
    constexpr std::size_t kEnough = 2;
    for (const NameIndex::Entry& name : longer.all()) {
      for (const std::size_t at : refined_boundaries(name.refined)) {
        const auto met = shorter.refined_as(name.refined.substr(at));
        for (const std::uint32_t id : met.first(std::min(met.size(), kEnough))) {
          take(name.id, id, name.refined.size() - at);
        }
      }
    }
  };
  meet(key_index, slot_index,
       [&](std::uint32_t key, std::uint32_t slot, std::size_t length) { add(slot, key, length); });
  meet(slot_index, key_index, add);
  return pairs;
}

// The pair with the longest suffix for each slot (or key); null if two suffixes are equally long.
template <typename Id>
std::map<std::uint32_t, const SuffixPair*> longest(const std::vector<SuffixPair>& pairs,
                                                   const Id& id) {
  std::map<std::uint32_t, std::pair<const SuffixPair*, bool>> best;
  for (const SuffixPair& pair : pairs) {
    auto& [winner, unique] = best.try_emplace(id(pair), &pair, true).first->second;
    if (winner == &pair || pair.length < winner->length) {
      continue;
    }
    unique = pair.length > winner->length;
    winner = &pair;
  }
  std::map<std::uint32_t, const SuffixPair*> result;
  for (const auto& [each, found] : best) {
    if (found.second) {
      result.emplace(each, found.first);
    }
  }
  return result;
}

}  // namespace

Status fill_explicit(MappingTask& task) {
  for (const MapEntry& entry : task.options.map) {
    TRY(fill_entry(entry, "map", Rule::kMap, task));
  }
  for (const MapEntry& entry : task.options.learned) {
    const auto slot_name = task.slot_name_called(entry.slot);
    if (slot_name && task.fills[task.slot_names[*slot_name].slots.front()]) {
      continue;
    }
    TRY(fill_entry(entry, "learned map", Rule::kLearned, task));
  }
  return {};
}

Status fill_aligned(const Aligned& aligned, MappingTask& task) {
  if (!aligned.conflicts.empty()) {
    return refuse_conflict(aligned.conflicts.front(), task);
  }
  if (!aligned.clashes.empty()) {
    return refuse_clashes(aligned, task);
  }
  for (const AlignedPair& pair : aligned.fits) {
    task.fill_by_name(pair.slot_name, pair.key, rule_of(pair, aligned.key_prefix, task));
  }
  return {};
}

void fill_by_suffix(MappingTask& task) {
  const std::vector<SuffixPair> pairs = suffix_pairs(task);
  const auto of_slots = longest(pairs, [](const SuffixPair& pair) { return pair.slot_name; });
  const auto of_keys = longest(pairs, [](const SuffixPair& pair) { return pair.key; });
  for (const auto& [slot, pair] : of_slots) {
    const auto back = of_keys.find(pair->key);
    if (back != of_keys.end() && back->second == pair) {
      task.fill_by_name(slot, pair->key, Rule::kSuffix);
    }
  }
}

}  // namespace onnx_external
