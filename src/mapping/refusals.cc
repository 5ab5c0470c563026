#include "mapping/refusals.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/advice.h"
#include "mapping/buffer_names.h"
#include "mapping/causes.h"
#include "mapping/leftovers.h"
#include "mapping/refusal_lists.h"
#include "mapping/scale_keys.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

// --- nothing matches ---------------------------------------------------------------------------

// True if element types prevent even equal names from matching, and nothing else does.
bool equal_names_once_cast(const MappingTask& task) {
  std::vector<bool> same_names(task.keys.keys.size());
  bool agree = false;
  for (std::uint32_t slot_name = 0; slot_name < task.slot_names.size(); ++slot_name) {
    if (const auto key = task.key_by_name.find(task.first_slot(slot_name).name)) {
      same_names[*key] = true;
      agree = agree || agrees_once_cast(task, slot_name, *key);
    }
  }
  return agree && scales_text(task, same_names).empty();
}

bool fills_any(const MappingTask& task) {
  return std::any_of(task.fills.begin(), task.fills.end(),
                     [](const std::optional<Fill>& fill) { return fill.has_value(); });
}

Status refuse_no_match(const MappingTask& task, const Mapping& mapping) {
  if (fills_any(task)) {
    return {};
  }
  if (task.keys.keys.empty()) {
    return fail(ErrorCode::kNotFound, "the checkpoint has no tensors");
  }
  const auto is_computed = [&](std::uint32_t slot) {
    return is_invented_name(task.graph.slots[slot].name) ||
           !task.graph.slots[slot].folded_from.empty();
  };
  const std::vector<std::uint32_t> missing = slots_without_key(task, mapping);
  const bool folded = std::any_of(missing.begin(), missing.end(), is_computed);
  const bool any_stale = !mapping.slots_with({SlotVerdict::kStale}).empty();
  const bool all_adapters =
      mapping.keys_with({KeyVerdict::kAdapter}).size() == task.keys.keys.size();
  if (task.options.partial == Partial::kRefuse && (folded || any_stale || all_adapters)) {
    return {};  // refuse_all() says why
  }
  Refusal refusal;
  std::vector<ErrorItem> slots;
  for (const SlotName& name : task.slot_names) {
    const Slot& slot = task.graph.slots[name.slots.front()];
    if (name.open && slot.kind != SlotKind::kIdentityOutput) {
      slots.push_back(item_of(slot, use_text(slot)));
    }
  }
  if (slots.empty() && !any_stale) {
    const std::string cause = cause_of(task);
    return fail(ErrorCode::kNotFound,
                "the graph has no slot to fill: no input that could be a weight, no undefined name "
                "and no initializer with a weight's name; " +
                    (cause.empty() ? std::string(kPlainExport) : cause));
  }
  std::vector<ErrorItem> keys;
  for (std::uint32_t key = 0; key < task.keys.keys.size(); ++key) {
    keys.push_back(item_of(task, key));
  }
  refusal.add_sentence("no key fits any slot");
  refusal.add_list(ErrorKind::kSlots, std::move(slots));
  refusal.add_list(ErrorKind::kKeys, std::move(keys));
  refusal.add_remedy({RemedyOption::kRename, "s/RE/REPL/", "to make the names match"});
  refusal.add_remedy({RemedyOption::kMap, "FILE", "to say which key fills which slot"});
  if (equal_names_once_cast(task)) {
    refusal.add_remedy(
        {RemedyOption::kDtype, "slot", "to convert the floats to the types in the graph"});
  } else {
    add_cause(task, refusal);
  }
  return fail(std::move(refusal).error(ErrorCode::kNotFound));
}

// --- all refusals ------------------------------------------------------------------------------

Status refuse_fused(const MappingTask& task) {
  Refusal refusal;
  std::vector<ErrorItem> items;
  for (const Slot& slot : task.graph.slots) {
    if (slot.batch_norm_fused && slot.consumer_count > 0) {
      items.push_back(item_of(slot, use_text(slot)));
    }
  }
  refusal.add_list(ErrorKind::kFused, std::move(items));
  if (refusal.empty()) {
    return {};
  }
  refusal.add_sentence("no key has their values");
  refusal.add_sentence(kPlainExport);
  return fail(std::move(refusal).error(ErrorCode::kMismatch));
}

void add_last_remedies(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  const std::vector<std::uint32_t> missing = slots_without_key(task, mapping);
  const bool named = std::any_of(missing.begin(), missing.end(), [&](std::uint32_t slot) {
    return !is_invented_name(task.graph.slots[slot].name) && !is_left_out(task.graph.slots[slot]);
  });
  if (task.options.partial == Partial::kRefuse && named) {
    refusal.add_remedy({RemedyOption::kMap, "FILE", "to say which key fills which slot"});
    refusal.add_remedy(
        {RemedyOption::kPartial, "",
         "to save an incomplete model: with weights that lack data, or that keep old values"});
  }
}

// True if the only problem is that the user must say which inputs are user inputs.
bool is_open_question(const Mapping& mapping) {
  return mapping.stale_constants.empty() &&
         mapping.slots_with({SlotVerdict::kMissing, SlotVerdict::kOld, SlotVerdict::kStale})
             .empty() &&
         mapping.keys_with({KeyVerdict::kUnused, KeyVerdict::kAdapter}).empty();
}

using Graphs = std::span<const JudgedGraph>;

// Slots that are open, or whose values would stay old.
void list_slots(Graphs graphs, Refusal& refusal) {
  for (const JudgedGraph& graph : graphs) {
    refusal.set_graph(graph.name);
    list_missing(*graph.task, *graph.mapping, refusal);
    list_held(*graph.task, *graph.mapping, refusal);
  }
  refusal.set_graph("");
}

// Lists keys that no graph uses, and slots that may be two merged keys.
void list_unused_and_merged(Graphs graphs, Refusal& refusal) {
  SlotTroubles troubles;
  std::vector<std::vector<ErrorItem>> merged;
  for (const JudgedGraph& graph : graphs) {
    merged.push_back(merged_slots(*graph.task, *graph.mapping));
    add_troubles(*graph.task, *graph.mapping, !merged.back().empty(), troubles);
  }
  list_unused(*graphs.front().task, *graphs.front().mapping, troubles, refusal);
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    refusal.set_graph(graphs[i].name);
    list_merged(std::move(merged[i]), refusal);
  }
  refusal.set_graph("");
}

// Lists slots that may not be weights.
void list_doubtful(Graphs graphs, Refusal& refusal) {
  for (const JudgedGraph& graph : graphs) {
    refusal.set_graph(graph.name);
    list_merged_constants(*graph.task, refusal);
    if (fills_any(*graph.task)) {  // otherwise it is not known which inputs precede the weights
      list_inputs(*graph.task, *graph.mapping, refusal);
    }
  }
  refusal.set_graph("");
}

Status refuse_all(Graphs graphs) {
  const MappingOptions& options = graphs.front().task->options;
  const bool is_strict = options.partial == Partial::kRefuse;
  const bool checks_keys = options.unmatched == Unmatched::kStrict;
  Refusal refusal;
  if (checks_keys) {
    list_adapters(*graphs.front().task, *graphs.front().mapping, refusal);
  }
  if (is_strict) {
    list_slots(graphs, refusal);
  }
  if (checks_keys && is_strict) {
    list_unused_and_merged(graphs, refusal);
  }
  if (is_strict) {
    list_doubtful(graphs, refusal);
  }
  if (refusal.empty()) {
    return {};
  }
  for (const JudgedGraph& graph : graphs) {
    add_last_remedies(*graph.task, *graph.mapping, refusal);
  }
  for (const JudgedGraph& graph : graphs) {
    add_cause(*graph.task, refusal);
  }
  const bool is_open = std::all_of(graphs.begin(), graphs.end(), [](const JudgedGraph& graph) {
    return is_open_question(*graph.mapping);
  });
  return fail(std::move(refusal).error(is_open ? ErrorCode::kAmbiguous : ErrorCode::kNotFound));
}

// Without its scale, a float8 weight that is saved as floats has other values, so its scale cannot
// be left out or kept beside it like other keys without a slot.
Status refuse_left_scales(const MappingTask& task, const Mapping& mapping) {
  std::vector<bool> taken;
  for (const MappedKey& key : mapping.keys) {
    taken.push_back(key.verdict != KeyVerdict::kUnused);
  }
  const std::string text = scales_text(task, taken, used_as_floats(task));
  return text.empty() ? Status()
                      : fail_with(ErrorCode::kMismatch, text,
                                  {{RemedyOption::kIgnore, "RE", "if these keys are not scales"}});
}

Status refuse_unmatched(const MappingTask& task, const Mapping& mapping) {
  if (task.options.unmatched != Unmatched::kKeep) {
    return {};
  }
  const NameSet defined(task.graph.defined_names.begin(), task.graph.defined_names.end());
  for (std::uint32_t key = 0; key < mapping.keys.size(); ++key) {
    const std::string& name = task.keys.keys[key].name;
    if (is_left_over(mapping.keys[key].verdict) &&
        (task.slot_by_name.contains(name) || defined.contains(name))) {
      return fail_with(
          ErrorCode::kInvalidArgument,
          "a key cannot become a new initializer: the graph already defines " + quote(name),
          {{RemedyOption::kRename, "s/RE/REPL/", "to give the key another name"},
           {RemedyOption::kUnmatched, "skip", "to leave such keys out"}});
    }
  }
  return {};
}

}  // namespace

Status check_refusals(Graphs graphs) {
  for (const JudgedGraph& graph : graphs) {
    Status fits = refuse_fused(*graph.task);
    fits = fits ? refuse_no_match(*graph.task, *graph.mapping) : fits;
    if (!fits) {
      return graph.name.empty() ? fits : fail_in(graph.name, std::move(fits).error());
    }
  }
  TRY(refuse_all(graphs));
  for (const JudgedGraph& graph : graphs) {
    TRY(refuse_left_scales(*graph.task, *graph.mapping));
  }
  return refuse_unmatched(*graphs.front().task, *graphs.front().mapping);
}

}  // namespace onnx_external
