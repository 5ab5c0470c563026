// Applies the rules in their order; docs/mapping.md explains each.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/try.h"
#include "mapping/alignment.h"
#include "mapping/leftovers.h"
#include "mapping/refusals.h"
#include "mapping/rules.h"
#include "mapping/task.h"
#include "mapping/ties.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

// Keys that no slot takes and that may be left out, in checkpoint order.
std::vector<std::uint32_t> unmatched_keys(const Leftovers& leftovers) {
  std::vector<std::uint32_t> keys;
  for (const auto* list : {&leftovers.unused, &leftovers.adapters, &leftovers.aside,
                           &leftovers.harmless, &leftovers.ignored}) {
    keys.insert(keys.end(), list->begin(), list->end());
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

MappingOptions without_pairs(MappingOptions options) {
  options.map.clear();
  options.learned.clear();
  options.ties.clear();
  options.casts = Casts::kRefuse;
  return options;
}

Mapping make_mapping(const MappingTask& task, Leftovers leftovers, const Alignment& alignment) {
  Mapping mapping;
  mapping.asked = without_pairs(task.options);
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    if (const std::optional<Fill>& fill = task.fills[slot]) {
      mapping.pairs.push_back({slot, fill->key, fill->rule, fill->recipe});
    }
  }
  mapping.unmatched_keys = unmatched_keys(leftovers);
  std::sort(leftovers.baked.begin(), leftovers.baked.end());
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
    mapping.unused_modules = std::move(leftovers.modules);
    mapping.baked_keys = std::move(leftovers.baked);
  }
  mapping.tied_keys = std::move(leftovers.tied);
  mapping.inputs_left = std::move(leftovers.callers);
  for (const std::uint32_t slot : leftovers.unconfirmed) {
    mapping.inputs_left.push_back(task.graph.slots[slot].name);
  }
  for (const auto* slots : {&leftovers.staying, &leftovers.held}) {
    for (const std::uint32_t slot : *slots) {
      mapping.initializers_kept.push_back(task.graph.slots[slot].name);
    }
  }
  for (const std::uint32_t slot : leftovers.missing) {
    const bool has_data = task.graph.slots[slot].has_data;
    (has_data ? mapping.initializers_kept : mapping.slots_left)
        .push_back(task.graph.slots[slot].name);
  }
  const std::string found = alignment_text(alignment);
  const bool both = !task.option_alignment.empty() && !found.empty();
  mapping.alignment = task.option_alignment + (both ? " " : "") + found;
  return mapping;
}

Status apply_rules(const MappingEvidence& evidence, MappingTask& task, Alignment& alignment) {
  TRY(fill_explicit(task));
  TRY_ASSIGN(auto aligned, choose_alignment(task));
  alignment = aligned.alignment;
  TRY(fill_aligned(aligned, task));
  if (aligned.score == 0 && task.options.match == Match::kAuto) {
    fill_by_suffix(task);
  }
  TRY(fill_metadata_ties(alignment, task));
  if (task.options.match == Match::kExact) {
    return {};
  }
  fill_renamed(alignment, task);
  return fill_graph_ties(alignment, evidence, task);
}

}  // namespace

std::string_view rule_name(Rule rule) {
  switch (rule) {
    case Rule::kMap:
      return "map";
    case Rule::kTie:
      return "tie";
    case Rule::kLearned:
      return "learned";
    case Rule::kMetadataTie:
      return "metadata-tie";
    case Rule::kGraphTie:
      return "graph-tie";
    case Rule::kRenamed:
      return "renamed";
    case Rule::kExact:
      return "exact";
    case Rule::kRefined:
      return "refined";
    case Rule::kPrefixAdded:
      return "prefix-added";
    case Rule::kPrefixRemoved:
      return "prefix-removed";
    case Rule::kSuffix:
      return "suffix";
    case Rule::kKept:
      return "kept";
  }
  return "";
}

Result<Mapping> map_tensors(const GraphFacts& graph, const MappingKeys& keys,
                            const MappingOptions& options, const MappingEvidence& evidence) {
  TRY_ASSIGN(auto task, make_task(graph, keys, options));
  Alignment alignment;
  TRY(apply_rules(evidence, task, alignment));
  TRY_ASSIGN(auto leftovers, find_leftovers(task, alignment, evidence));
  TRY(check_refusals(task, leftovers));
  return make_mapping(task, std::move(leftovers), alignment);
}

}  // namespace onnx_external
