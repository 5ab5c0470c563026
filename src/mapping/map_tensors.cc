// The rules in their order; docs/mapping.md explains each.
#include <algorithm>
#include <utility>

#include "mapping/alignment.h"
#include "mapping/refusals.h"
#include "mapping/rules.h"
#include "mapping/task.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

Mapping make_mapping(const MappingTask& task, Leftovers leftovers, const Alignment& alignment) {
  Mapping mapping;
  for (std::uint32_t slot = 0; slot < task.fills.size(); ++slot) {
    if (task.fills[slot]) {
      mapping.pairs.push_back(
          {slot, task.fills[slot]->key, task.fills[slot]->rule, task.fills[slot]->recipe});
    }
  }
  if (task.options.unmatched == Unmatched::kKeep) {
    for (const std::uint32_t key : leftovers.keys) {
      mapping.pairs.push_back({Attachment::kNoSlot, key, Rule::kKept});
    }
    leftovers.keys.clear();
  }
  mapping.unmatched_keys = std::move(leftovers.keys);
  mapping.unmatched_keys.insert(mapping.unmatched_keys.end(), leftovers.other_keys.begin(),
                                leftovers.other_keys.end());
  std::sort(mapping.unmatched_keys.begin(), mapping.unmatched_keys.end());
  mapping.tied_keys = std::move(leftovers.tied);
  mapping.inputs_left = std::move(leftovers.inputs_left);
  for (const std::uint32_t slot : leftovers.kept_slots) {
    mapping.initializers_kept.push_back(task.graph.slots[slot].name);
  }
  for (const std::uint32_t slot : leftovers.missing_slots) {
    mapping.slots_left.push_back(task.graph.slots[slot].name);
  }
  const std::string found = alignment_text(alignment);
  const bool both = !task.option_alignment.empty() && !found.empty();
  mapping.alignment = task.option_alignment + (both ? " " : "") + found;
  return mapping;
}

Status apply_rules(MappingTask& task, Alignment& alignment) {
  if (Status status = fill_explicit(task); !status) {
    return status;
  }
  Result<Aligned> aligned = choose_alignment(task);
  if (!aligned) {
    return fail(std::move(aligned).error());
  }
  alignment = aligned->alignment;
  if (Status status = fill_aligned(*aligned, task); !status) {
    return status;
  }
  if (aligned->score == 0 && task.options.match == Match::kAuto) {
    fill_by_suffix(task);
  }
  return fill_metadata_ties(alignment, task);
}

}  // namespace

std::string_view rule_name(Rule rule) {
  switch (rule) {
    case Rule::kMap:
      return "map";
    case Rule::kTie:
      return "tie";
    case Rule::kMetadataTie:
      return "metadata-tie";
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
                            const MappingOptions& options,
                            const MappingEvidence& /*evidence*/) {
  Result<MappingTask> task = make_task(graph, keys, options);
  if (!task) {
    return fail(std::move(task).error());
  }
  Alignment alignment;
  if (Status status = apply_rules(*task, alignment); !status) {
    return fail(std::move(status).error());
  }
  Leftovers leftovers = find_leftovers(*task);
  if (Status status = check_refusals(*task, leftovers); !status) {
    return fail(std::move(status).error());
  }
  return make_mapping(*task, std::move(leftovers), alignment);
}

}  // namespace onnx_external
