// Applies the rules in their order; docs/mapping.md explains each.
#include <algorithm>
#include <array>
#include <utility>

#include "base/name_map.h"
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

// Turns the keys that are left over into new initializers.
void keep_keys(Mapping& mapping) {
  for (std::uint32_t key = 0; key < mapping.keys.size(); ++key) {
    if (is_left_over(mapping.keys[key].verdict)) {
      mapping.keys[key].verdict = KeyVerdict::kUsed;
      mapping.pairs.push_back({kNoSlot, key, Rule::kKept, {}});
    }
  }
  mapping.unused_modules.clear();
}

// Sets MappedKey::in_unused_module.
void mark_unused_modules(const MappingKeys& keys, Mapping& mapping) {
  NameSet modules;
  for (const UnusedModule& module : mapping.unused_modules) {
    modules.insert(module.name);
  }
  for (std::size_t key = 0; key < mapping.keys.size() && !modules.empty(); ++key) {
    const std::string_view name = keys.keys[key].name;
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1)) {
      MappedKey& state = mapping.keys[key];
      state.in_unused_module = state.in_unused_module || modules.contains(name.substr(0, dot));
    }
  }
}

}  // namespace

void complete_mapping(const MappingTask& task, const KeyPrefix& key_prefix, Mapping& mapping) {
  mapping.options = without_pairs(task.options);
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    if (const std::optional<Fill>& fill = task.fills[slot]) {
      mapping.pairs.push_back({slot, fill->key, fill->rule, fill->recipe});
    }
  }
  if (task.options.unmatched == Unmatched::kKeep) {
    keep_keys(mapping);
  }
  mark_unused_modules(task.keys, mapping);
  const std::string found = key_prefix_text(key_prefix);
  const bool both = !task.option_alignment.empty() && !found.empty();
  mapping.key_prefix = task.option_alignment + (both ? " " : "") + found;
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
