#include "mapping/refusals.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "mapping/advice.h"
#include "mapping/causes.h"
#include "mapping/known_names.h"
#include "mapping/refusal_lists.h"

namespace onnx_external {
namespace {

// --- nothing matches ---------------------------------------------------------------------------

// True if element types prevent even equal names from matching.
bool equal_names_once_cast(const MappingTask& task) {
  for (std::uint32_t slot_name = 0; slot_name < task.slot_names.size(); ++slot_name) {
    const auto key = task.key_by_name.find(task.first_slot(slot_name).name);
    if (key && agrees_once_cast(task, slot_name, *key)) {
      return true;
    }
  }
  return false;
}

bool fills_any(const MappingTask& task) {
  return std::any_of(task.fills.begin(), task.fills.end(),
                     [](const std::optional<Fill>& fill) { return fill.has_value(); });
}

Status refuse_no_match(const MappingTask& task, const Leftovers& leftovers) {
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
  const bool folded = std::any_of(leftovers.missing.begin(), leftovers.missing.end(), is_computed);
  if (task.options.partial == Partial::kRefuse &&
      (folded || !leftovers.held.empty() || leftovers.adapters.size() == task.keys.keys.size())) {
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
  if (slots.empty() && leftovers.held.empty()) {
    const std::string cause = cause_of(task);
    return fail(ErrorCode::kNotFound,
                "the graph has no slot to fill: no input that could be a weight, no undefined "
                "name, no initializer of a weight's name; " +
                    (cause.empty() ? std::string(kPlainExport) : cause));
  }
  std::vector<ErrorItem> keys;
  for (std::uint32_t key = 0; key < task.keys.keys.size(); ++key) {
    keys.push_back(item_of(task, key));
  }
  refusal.add_sentence("no key fits any slot");
  refusal.add_list("slot of the graph", "slots of the graph", "slots of the graph",
                   std::move(slots));
  refusal.add_list("key", "keys", "keys of the checkpoint", std::move(keys));
  refusal.add_remedy({"rename", "s/RE/REPL/", "to bring the names together"});
  refusal.add_remedy({"map", "FILE", "to say which key fills which slot"});
  if (equal_names_once_cast(task)) {
    refusal.add_remedy({"cast", "", "to convert the floats to the types of the graph"});
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
  refusal.add_list("weight of the graph has a BatchNorm multiplied into it under its old name",
                   "weights of the graph have a BatchNorm multiplied into them under their old "
                   "names",
                   "fused with a BatchNorm", std::move(items));
  if (refusal.empty()) {
    return {};
  }
  refusal.add_sentence("no key has their values");
  refusal.add_sentence(kPlainExport);
  return fail(std::move(refusal).error(ErrorCode::kMismatch));
}

void add_last_remedies(const MappingTask& task, const Leftovers& leftovers, Refusal& refusal) {
  const bool named =
      std::any_of(leftovers.missing.begin(), leftovers.missing.end(), [&](std::uint32_t slot) {
        return !is_invented_name(task.graph.slots[slot].name) &&
               !is_left_out(task.graph.slots[slot]);
      });
  if (task.options.partial == Partial::kRefuse && named) {
    refusal.add_remedy({"map", "FILE", "to say which key fills which slot"});
    refusal.add_remedy({"partial", "",
                        "to save an incomplete model: weights without data, or old "
                        "beside new"});
  }
}

// Whether everything that is wrong with the slots is that somebody must say what they are.
bool is_open_question(const Leftovers& leftovers) {
  return leftovers.missing.empty() && leftovers.held.empty() && leftovers.constants.empty();
}

Status refuse_all(const MappingTask& task, const Leftovers& leftovers) {
  Refusal refusal;
  const bool is_strict = task.options.partial == Partial::kRefuse;
  const bool checks_keys = task.options.unmatched == Unmatched::kStrict;
  if (checks_keys) {
    list_adapters(task, leftovers, refusal);
  }
  if (is_strict) {
    list_missing(task, leftovers, refusal);
    list_held(task, leftovers, refusal);
  }
  if (checks_keys && is_strict) {
    std::vector<ErrorItem> merged = merged_slots(task, leftovers);
    SlotTroubles troubles;
    add_troubles(task, leftovers, !merged.empty(), troubles);
    list_unused(task, leftovers, troubles, refusal);
    list_merged(std::move(merged), refusal);
  }
  if (is_strict) {
    list_merged_constants(task, refusal);
  }
  if (is_strict && fills_any(task)) {  // otherwise it is not known which inputs precede the weights
    list_inputs(task, leftovers, refusal);
  }
  if (refusal.empty()) {
    return {};
  }
  add_last_remedies(task, leftovers, refusal);
  add_cause(task, refusal);
  const bool open_question =
      is_open_question(leftovers) && leftovers.unused.empty() && leftovers.adapters.empty();
  return fail(
      std::move(refusal).error(open_question ? ErrorCode::kAmbiguous : ErrorCode::kNotFound));
}

Status refuse_unmatched(const MappingTask& task, const Leftovers& leftovers) {
  if (task.options.unmatched != Unmatched::kKeep) {
    return {};
  }
  const NameSet defined(task.graph.defined_names.begin(), task.graph.defined_names.end());
  for (const std::uint32_t key : leftovers.without_slot()) {
    const std::string& name = task.keys.keys[key].name;
    if (task.slot_by_name.contains(name) || defined.contains(name)) {
      return fail_with(
          ErrorCode::kInvalidArgument,
          "a key cannot become an initializer of its own: the graph already defines " + quote(name),
          {{"rename", "s/RE/REPL/", "to give the key another name"},
           {"unmatched", "skip", "to leave such keys out"}});
    }
  }
  return {};
}

// --- several graphs ----------------------------------------------------------------------------

// What is wrong with the slots of one of several graphs.
std::optional<Error> slots_error(const JudgedGraph& graph, SlotTroubles& troubles) {
  const MappingTask& task = *graph.task;
  const Leftovers& leftovers = *graph.leftovers;
  if (task.options.partial == Partial::kAllow) {
    return std::nullopt;
  }
  Refusal refusal;
  list_missing(task, leftovers, refusal);
  list_held(task, leftovers, refusal);
  if (task.options.unmatched == Unmatched::kStrict) {
    std::vector<ErrorItem> merged = merged_slots(task, leftovers);
    add_troubles(task, leftovers, !merged.empty(), troubles);
    list_merged(std::move(merged), refusal);
  }
  list_merged_constants(task, refusal);
  if (fills_any(task)) {
    list_inputs(task, leftovers, refusal);
  }
  if (refusal.empty()) {
    return std::nullopt;
  }
  add_last_remedies(task, leftovers, refusal);
  add_cause(task, refusal);
  return std::move(refusal).error(is_open_question(leftovers) ? ErrorCode::kAmbiguous
                                                              : ErrorCode::kNotFound);
}

// What is wrong with the keys, which all graphs have in common.
std::optional<Error> keys_error(const JudgedGraph& graph, const SlotTroubles& troubles) {
  const MappingOptions& options = graph.task->options;
  Refusal refusal;
  if (options.unmatched == Unmatched::kStrict) {
    list_adapters(*graph.task, *graph.leftovers, refusal);
    if (options.partial == Partial::kRefuse) {
      list_unused(*graph.task, *graph.leftovers, troubles, refusal);
    }
  }
  if (refusal.empty()) {
    return std::nullopt;
  }
  add_cause(*graph.task, refusal);
  return std::move(refusal).error(ErrorCode::kNotFound);
}

// Several errors as one. `name` stands in front of what is about one graph.
class JoinedErrors {
 public:
  void add(std::string_view name, const Error& error) {
    const std::string where = name.empty() ? "" : std::string(name) + ": ";
    message_ += (message_.empty() ? "" : "; ") + where + error.message;
    if (code_ != ErrorCode::kNotFound) {
      code_ = error.code;
    }
    for (ErrorList list : error.details ? error.details->lists : std::vector<ErrorList>()) {
      list.title = where + list.title;
      details_.lists.push_back(std::move(list));
    }
    for (const Remedy& remedy : error.details ? error.details->remedies : std::vector<Remedy>()) {
      if (remedies_.emplace(remedy.option, remedy.value).second) {
        details_.remedies.push_back(remedy);
      }
    }
  }

  [[nodiscard]] Status status() && {
    return message_.empty()
               ? Status()
               : fail(Error{code_, std::move(message_),
                            std::make_shared<const ErrorDetails>(std::move(details_))});
  }

 private:
  ErrorCode code_ = ErrorCode::kAmbiguous;
  std::string message_;
  ErrorDetails details_;
  std::set<std::pair<std::string, std::string>> remedies_;  // option and value
};

}  // namespace

Status check_set_refusals(std::span<const JudgedGraph> graphs) {
  for (const JudgedGraph& graph : graphs) {
    TRY_IN(graph.name, refuse_fused(*graph.task));
    TRY_IN(graph.name, refuse_no_match(*graph.task, *graph.leftovers));
  }
  JoinedErrors errors;
  SlotTroubles troubles;
  for (const JudgedGraph& graph : graphs) {
    if (const auto error = slots_error(graph, troubles)) {
      errors.add(graph.name, *error);
    }
  }
  if (const auto error = keys_error(graphs.front(), troubles)) {
    errors.add("", *error);
  }
  TRY(std::move(errors).status());
  return refuse_unmatched(*graphs.front().task, *graphs.front().leftovers);
}

Status check_refusals(const MappingTask& task, const Leftovers& leftovers) {
  TRY(refuse_fused(task));
  TRY(refuse_no_match(task, leftovers));
  TRY(refuse_all(task, leftovers));
  return refuse_unmatched(task, leftovers);
}

}  // namespace onnx_external
