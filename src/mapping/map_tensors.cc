// Applies the rules in their order; docs/mapping.md explains each.
#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "base/try.h"
#include "mapping/key_prefix.h"
#include "mapping/leftovers.h"
#include "mapping/map_steps.h"
#include "mapping/rules.h"
#include "mapping/task.h"
#include "mapping/ties.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

MappingOptions without_pairs(MappingOptions options) {
  options.map.clear();
  options.learned.clear();
  options.casts = Casts::kRefuse;
  return options;
}

}  // namespace

Mapping make_mapping(const MappingTask& task, Leftovers leftovers, const KeyPrefix& key_prefix) {
  Mapping mapping;
  mapping.options = without_pairs(task.options);
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    if (const std::optional<Fill>& fill = task.fills[slot]) {
      mapping.pairs.push_back({slot, fill->key, fill->rule, fill->recipe});
    }
  }
  mapping.unmatched_keys = leftovers.without_slot();
  mapping.unmatched_keys.insert(mapping.unmatched_keys.end(), leftovers.ignored.begin(),
                                leftovers.ignored.end());
  std::sort(mapping.unmatched_keys.begin(), mapping.unmatched_keys.end());
  std::sort(leftovers.baked.begin(), leftovers.baked.end());
  std::copy_if(leftovers.ignored.begin(), leftovers.ignored.end(),
               std::back_inserter(mapping.ignored_keys),
               [&](std::uint32_t key) { return task.key_names[key].usable; });
  if (task.options.unmatched == Unmatched::kKeep) {
    const std::unordered_set<std::uint32_t> ignored(leftovers.ignored.begin(),
                                                    leftovers.ignored.end());
    for (const std::uint32_t key : mapping.unmatched_keys) {
      if (!ignored.contains(key)) {
        mapping.pairs.push_back({kNoSlot, key, Rule::kKept, {}});
      }
    }
    mapping.unmatched_keys = std::move(leftovers.ignored);
  } else {
    mapping.skipped_keys = leftovers.unused;
    mapping.skipped_keys.insert(mapping.skipped_keys.end(), leftovers.adapters.begin(),
                                leftovers.adapters.end());
    mapping.unused_modules = std::move(leftovers.modules);
    mapping.baked_keys = std::move(leftovers.baked);
  }
  mapping.tied_keys = std::move(leftovers.tied);
  mapping.inputs_left = std::move(leftovers.user_inputs);
  for (const std::uint32_t slot : leftovers.unconfirmed) {
    mapping.inputs_left.push_back(task.graph.slots[slot].name);
  }
  for (const auto* slots : {&leftovers.kept, &leftovers.stale}) {
    for (const std::uint32_t slot : *slots) {
      mapping.initializers_kept.push_back(task.graph.slots[slot].name);
    }
  }
  for (const std::uint32_t slot : leftovers.missing) {
    const bool has_data = task.graph.slots[slot].has_data;
    (has_data ? mapping.initializers_kept : mapping.slots_left)
        .push_back(task.graph.slots[slot].name);
    if (has_data) {
      mapping.left_old.push_back(task.graph.slots[slot].name);
    }
  }
  for (const std::uint32_t slot : leftovers.stale) {
    mapping.left_old.push_back(task.graph.slots[slot].name);
  }
  mapping.left_old.insert(mapping.left_old.end(), leftovers.constants.begin(),
                          leftovers.constants.end());
  const std::string found = key_prefix_text(key_prefix);
  const bool both = !task.option_alignment.empty() && !found.empty();
  mapping.key_prefix = task.option_alignment + (both ? " " : "") + found;
  return mapping;
}

Result<KeyPrefix> apply_rules(const MappingEvidence& evidence, MappingTask& task) {
  TRY(fill_explicit(task));
  TRY_ASSIGN(auto aligned, choose_key_prefix(task));
  const KeyPrefix& key_prefix = aligned.key_prefix;
  TRY(fill_aligned(aligned, task));
  if (aligned.score == 0 && !task.keys_have_own_names()) {
    fill_by_suffix(task);
  }
  TRY(fill_metadata_ties(key_prefix, task));
  fill_renamed(key_prefix, task);
  TRY(fill_graph_ties(key_prefix, evidence, task));
  return key_prefix;
}

std::string_view rule_name(Rule rule) {
  constexpr std::array<std::string_view, 11> kNames = {
      "map",     "learned",      "metadata-tie",   "graph-tie", "renamed", "exact",
      "refined", "prefix-added", "prefix-removed", "suffix",    "kept"};
  static_assert(kNames.size() == static_cast<std::size_t>(Rule::kKept) + 1);
  return kNames[static_cast<std::size_t>(rule)];
}

}  // namespace onnx_external
