#include "mapping/refusal_lists.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/nearest_names.h"
#include "base/text.h"
#include "mapping/averaged_copies.h"
#include "mapping/buffer_names.h"
#include "mapping/leftovers.h"
#include "mapping/name_refinement.h"
#include "mapping/user_inputs.h"
#include "mapping/verdict_lists.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kNearest = 2;
constexpr std::size_t kMaxNearestSearched = 64;  // items of a list for which candidates are
                                                 // searched, because searching is expensive

std::string escaped(std::string_view name) {
  std::string text;
  for (const char c : name) {
    text += std::string_view(".^$|()[]{}*+?\\").find(c) != std::string_view::npos ? "\\" : "";
    text += c;
  }
  return text;
}

}  // namespace

ErrorItem item_of(const MappingTask& task, std::uint32_t key, std::string note) {
  const MappingKey& given = task.keys.keys[key];
  const std::string_view name = task.key_names[key].name;
  if (!task.options.renames.empty() && name != given.name) {
    note = "renamed " + quote(name) + (note.empty() ? "" : ", ") + note;
  }
  return item_of(given, std::move(note));
}

// --- merged weights ----------------------------------------------------------------------------

namespace {

// Returns the number of consumers that each slot has after the Identity nodes of filled slots are
// removed.
std::vector<std::uint64_t> consumers_after(const MappingTask& task) {
  std::vector<std::uint64_t> consumers;
  for (const Slot& slot : task.graph.slots) {
    consumers.push_back(slot.consumer_count);
  }
  // An Identity follows what it reads, so its own count is final when slots are visited backwards.
  for (std::size_t i = task.graph.slots.size(); i-- > 0;) {
    const Slot& slot = task.graph.slots[i];
    const auto source = task.slot_by_name.find(slot.merged_into);
    if (slot.kind == SlotKind::kIdentityOutput && source) {
      std::uint64_t& count = consumers[*source];
      count -= std::min<std::uint64_t>(count, 1);
      count += task.fills[i] ? 0 : consumers[i];
    }
  }
  return consumers;
}

}  // namespace

namespace {

// Returns, for each key, whether another key is tied to it.
std::vector<bool> keys_with_ties(const Mapping& mapping) {
  std::vector<bool> found(mapping.keys.size());
  for (const std::uint32_t key : mapping.keys_with({KeyVerdict::kTied})) {
    found[mapping.keys[key].tied_to] = true;
  }
  return found;
}

}  // namespace

std::vector<ErrorItem> merged_slots(const MappingTask& task, const Mapping& mapping) {
  std::map<std::pair<DType, Shape>, std::uint32_t> left;
  for (const std::uint32_t key :
       mapping.keys_with({KeyVerdict::kUnusedModule, KeyVerdict::kUnused})) {
    left.emplace(std::pair(task.keys.keys[key].dtype, task.keys.keys[key].shape), key);
  }
  std::vector<ErrorItem> items;
  const bool any_merged = std::any_of(task.graph.slots.begin(), task.graph.slots.end(),
                                      [](const Slot& slot) { return slot.scale_and_statistic; });
  const auto consumers =
      left.empty() && !any_merged ? std::vector<std::uint64_t>() : consumers_after(task);
  const std::vector<bool> have_ties = keys_with_ties(mapping);
  for (std::uint32_t i = 0; i < consumers.size(); ++i) {
    const Slot& slot = task.graph.slots[i];
    if (!task.fills[i] || consumers[i] < 2) {
      continue;
    }
    const MappingKey& used = task.keys.keys[task.fills[i]->key];
    const auto same = left.find(std::pair(used.dtype, used.shape));
    // The checkpoint may have only one of two weights of a BatchNorm.
    const bool lacks_other_weight = slot.scale_and_statistic && !have_ties[task.fills[i]->key];
    if (same != left.end() || lacks_other_weight) {
      ErrorItem item = item_of(slot, std::to_string(consumers[i]) + " nodes use it");
      if (same != left.end()) {
        item.candidates.push_back(task.keys.keys[same->second].name);
      }
      items.push_back(std::move(item));
    }
  }
  return items;
}

// --- open slots and old values -----------------------------------------------------------------

namespace {

// Returns the key without a slot that has the type and shape of the slot, if there is exactly one.
std::optional<std::uint32_t> only_fitting(const MappingTask& task, const Slot& slot,
                                          std::span<const std::uint32_t> left) {
  std::optional<std::uint32_t> only;
  for (const std::uint32_t key : left) {
    if (slot.shape && agrees(task, slot, task.keys.keys[key], {})) {
      if (only) {
        return std::nullopt;
      }
      only = key;
    }
  }
  return only;
}

// The open slots that only the graph can fill.
void list_left_out(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  std::vector<ErrorItem> items;
  for (const std::uint32_t i : slots_without_key(task, mapping)) {
    if (is_left_out(task.graph.slots[i])) {
      items.push_back(item_of(task.graph.slots[i], use_text(task.graph.slots[i])));
    }
  }
  if (!items.empty()) {
    refusal.add_lead(kKeepConstants);
  }
  refusal.add_list(ErrorKind::kLeftOut, std::move(items));
}

}  // namespace

bool is_left_out(const Slot& slot) {
  const bool open = slot.kind == SlotKind::kUndefinedName ||
                    (slot.kind == SlotKind::kInitializer && !slot.has_data);
  const bool is_statistic =
      slot.name.ends_with("running_mean") || slot.name.ends_with("running_var");
  return open && (slot.origin == SlotOrigin::kConstant || slot.origin == SlotOrigin::kLocalBuffer ||
                  is_baked_buffer(slot.name, {}) || (slot.read_as_buffer && !is_statistic));
}

void list_missing(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  list_left_out(task, mapping, refusal);
  const std::vector<std::uint32_t> left =
      mapping.keys_with({KeyVerdict::kUnused, KeyVerdict::kUnusedModule});
  NearestNames search;
  std::vector<std::string_view> names;
  names.reserve(left.size());
  for (const std::uint32_t key : left) {
    names.push_back(task.key_names[key].name);
  }
  std::vector<ErrorItem> items;
  bool invented = false;
  for (const std::uint32_t i : slots_without_key(task, mapping)) {
    const Slot& slot = task.graph.slots[i];
    if (is_left_out(slot)) {
      continue;
    }
    ErrorItem item = item_of(slot, slot.kind == SlotKind::kIdentityOutput
                                       ? "made equal to " + quote(slot.merged_into) + " at export"
                                       : use_text(slot));
    invented =
        invented || is_invented_name(slot.name) || (!slot.folded_from.empty() && !slot.transposed);
    if (items.size() < kMaxNearestSearched) {
      for (const std::size_t place : search.of(slot.name, names, kNearest)) {
        item.candidates.push_back(task.keys.keys[left[place]].name);
      }
      const auto fits = only_fitting(task, slot, left);
      if (item.candidates.empty() && fits && !is_invented_name(slot.name)) {
        item.candidates.push_back(task.keys.keys[*fits].name);
      }
    }
    items.push_back(std::move(item));
  }
  refusal.add_list(ErrorKind::kMissing, std::move(items));
  if (invented) {
    refusal.add_sentence(
        "names that exporters generate (onnx::MatMul_8, val_12) belong to values that were "
        "computed from weights at export");
    refusal.add_sentence(kPlainExport);
  }
}

namespace {

// Returns text that says how the exporter computed the value, judging by the operator that reads
// it.
std::string computed_text(const Slot& slot) {
  if (!slot.folded_from.empty()) {
    return "computed at export from " + quote_list(slot.folded_from, kNearest);
  }
  const std::string& op = slot.consumer_op;
  if (op == "MatMul") {
    return "perhaps a transposed weight, used by MatMul";
  }
  if (op == "Conv" || op == "ConvTranspose") {
    return "perhaps a weight with a BatchNorm folded in, used by " + op;
  }
  if (op == "LSTM" || op == "GRU" || op == "RNN") {
    return "weights with reordered gates, used by " + op;
  }
  return op.empty() ? "" : "perhaps computed from a weight, " + use_text(slot);
}

// Returns whether the exporter recorded that it computed one of the values from a key, which may be
// different now.
bool folds_a_key(const MappingTask& task, const Mapping& mapping) {
  NameSet keys;
  for (const KeyName& key : task.key_names) {
    keys.insert(key.name);
  }
  const std::vector<std::uint32_t> stale = mapping.slots_with({SlotVerdict::kStale});
  return std::any_of(stale.begin(), stale.end(), [&](std::uint32_t slot) {
    const std::vector<std::string>& names = task.graph.slots[slot].folded_from;
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return keys.contains(name); });
  });
}

}  // namespace

void list_held(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  std::vector<ErrorItem> items;
  std::vector<std::string> names;
  for (const std::uint32_t slot : mapping.slots_with({SlotVerdict::kStale})) {
    items.push_back(item_of(task.graph.slots[slot], computed_text(task.graph.slots[slot])));
    names.push_back(task.graph.slots[slot].name);
  }
  for (const std::string& constant : mapping.stale_constants) {
    items.push_back(
        {constant, "", "a Constant node with as many elements as a key without a slot", {}});
    names.push_back(constant);
  }
  if (items.empty()) {
    return;
  }
  refusal.add_list(ErrorKind::kStale, std::move(items));
  refusal.add_sentence(kPlainExport);
  refusal.add_remedy({RemedyOption::kLearnMap, "OLD",
                      "with the checkpoint that the graph was exported from, to find out by "
                      "content what the values were computed from"});
  // The values may have been computed from keys without a slot.
  if (mapping.keys_with({KeyVerdict::kUnused, KeyVerdict::kUnusedModule}).empty() &&
      !folds_a_key(task, mapping)) {
    refusal.add_remedy(
        {RemedyOption::kKeep, fmt::format("{}", fmt::join(names, ",")),
         "only if they certainly do not depend on weights; otherwise the model is wrong"});
  }
}

void add_troubles(const MappingTask& task, const Mapping& mapping, bool any_merged,
                  SlotTroubles& troubles) {
  troubles.computed =
      troubles.computed || any_merged || !mapping.slots_with({SlotVerdict::kStale}).empty();
  for (const std::uint32_t slot : slots_without_key(task, mapping)) {
    const std::string& name = task.graph.slots[slot].name;
    troubles.missing.push_back(name);
    troubles.computed = troubles.computed || is_invented_name(name);
  }
}

namespace {

// Lists the unused keys that are averaged copies of used ones, and returns the others.
std::vector<std::uint32_t> list_averaged_copies(const MappingTask& task,
                                                const std::vector<std::uint32_t>& unused,
                                                Refusal& refusal) {
  const std::vector<AveragedCopy> copies = find_averaged_copies(task, unused);
  if (copies.empty()) {
    return unused;
  }
  std::vector<ErrorItem> items;
  std::set<std::uint32_t> listed;
  for (const AveragedCopy& copy : copies) {
    items.push_back(item_of(task, copy.key, "of " + quote(task.keys.keys[copy.weight].name)));
    listed.insert(copy.key);
  }
  std::vector<std::uint32_t> others = unused;
  std::erase_if(others, [&](std::uint32_t key) { return listed.contains(key); });
  refusal.add_list(ErrorKind::kAveraged, std::move(items));
  refusal.add_remedy(
      {RemedyOption::kIgnore, expression_for(copies), "to save the weights without the averages"});
  return others;
}

}  // namespace

void list_unused(const MappingTask& task, const Mapping& mapping, const SlotTroubles& troubles,
                 Refusal& refusal) {
  NearestNames search;
  const std::vector<std::string_view>& names = troubles.missing;
  std::vector<ErrorItem> items;
  bool batch_norm = false;
  const std::vector<std::uint32_t> unused =
      list_averaged_copies(task, mapping.keys_with({KeyVerdict::kUnused}), refusal);
  for (const std::uint32_t i : unused) {
    const MappingKey& key = task.keys.keys[i];
    ErrorItem item = item_of(task, i);
    if (items.size() < kMaxNearestSearched) {
      for (const std::size_t place : search.of(task.key_names[i].name, names, kNearest)) {
        item.candidates.emplace_back(names[place]);
      }
    }
    batch_norm = batch_norm || key.name.ends_with("running_mean");
    items.push_back(std::move(item));
  }
  if (items.empty()) {
    return;
  }
  refusal.add_list(ErrorKind::kUnused, std::move(items));
  if (batch_norm) {
    refusal.add_sentence("a BatchNorm that the graph lacks was folded into other weights");
    refusal.add_sentence(kPlainExport);
  }
  if (batch_norm || troubles.computed) {
    return;  // other values were computed from them, so leaving them out would be wrong
  }
  refusal.add_sentence(
      "use a graph and a checkpoint of the same model, because a model that lacks some of its "
      "weights computes wrong results");
  refusal.add_remedy({RemedyOption::kIgnore,
                      "^" + escaped(task.keys.keys[unused.front()].name) + "$",
                      "only for keys that are not weights of this model"});
  refusal.add_remedy({RemedyOption::kUnmatched, "skip",
                      "to leave out all unused keys, if none of them is a weight"});
}

void list_adapters(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  std::vector<ErrorItem> items;
  std::set<std::string_view> components;
  for (const std::uint32_t key : mapping.keys_with({KeyVerdict::kAdapter})) {
    items.push_back(item_of(task, key));
    components.insert(adapter_component(task.keys.keys[key].name));
  }
  if (items.empty()) {
    return;
  }
  refusal.add_list(ErrorKind::kAdapter, std::move(items));
  refusal.add_sentence(
      "an adapter changes the base model: to merge a peft LoRA, pass its folder after the folder "
      "of its base; or merge the adapter first (peft: model.merge_and_unload()), and use the "
      "merged state dict");
  refusal.add_remedy({RemedyOption::kIgnore, fmt::format("{}", fmt::join(components, "|")),
                      "to save the base model without the adapter"});
}

namespace {

std::vector<std::string> user_inputs(const MappingTask& task, const Mapping& mapping) {
  return names_with({SlotVerdict::kUserInput}, left_names(task.graph, mapping));
}

// The inputs that are certainly user inputs, ready to paste. If the exporter invented names for
// arguments, an integer input with a name of its own may be a buffer. If nothing is certain, the
// first input is taken.
std::vector<std::string> callers_to_paste(const MappingTask& task, const Mapping& mapping) {
  const std::vector<std::string> certain = user_inputs(task, mapping);
  const std::vector<std::uint32_t> unconfirmed = mapping.slots_with({SlotVerdict::kUnconfirmed});
  NameSet wanted(certain.begin(), certain.end());
  bool only_made_up = false;
  for (const std::uint32_t slot : unconfirmed) {
    const std::string& name = task.graph.slots[slot].name;
    if (is_made_up(name)) {
      only_made_up = true;
      wanted.insert(name);
    }
  }
  std::vector<std::string> sorted;
  for (const std::string& input : task.graph.graph_inputs) {
    if (wanted.contains(input) && (is_made_up(input) || !only_made_up)) {
      sorted.push_back(input);
    }
  }
  if (sorted.empty() && !unconfirmed.empty()) {
    sorted.push_back(task.graph.slots[unconfirmed.front()].name);
  }
  return sorted;
}

}  // namespace

void list_inputs(const MappingTask& task, const Mapping& mapping, Refusal& refusal) {
  const std::vector<std::string> paste = callers_to_paste(task, mapping);
  const NameSet pasted(paste.begin(), paste.end());
  std::vector<ErrorItem> items;
  std::vector<std::string> others;
  const auto add = [&](std::uint32_t i, std::string note) {
    const Slot& slot = task.graph.slots[i];
    items.push_back(item_of(slot, std::move(note)));
    if (!pasted.contains(slot.name)) {
      others.push_back(slot.name);
    }
  };
  for (const std::string& caller : user_inputs(task, mapping)) {
    if (!pasted.contains(caller)) {
      others.push_back(caller);
    }
  }
  for (const std::uint32_t slot : mapping.slots_with({SlotVerdict::kUnconfirmed})) {
    add(slot, use_text(task.graph.slots[slot]));
  }
  for (const std::uint32_t slot : mapping.slots_with({SlotVerdict::kDoubtful})) {
    add(slot, "a key has this name, type and shape");
  }
  const bool any_open = !items.empty();
  refusal.add_list(ErrorKind::kUnconfirmed, std::move(items));
  const std::vector<std::uint32_t> missing = mapping.slots_with({SlotVerdict::kMissing});
  const bool input_missing = std::any_of(missing.begin(), missing.end(), [&](std::uint32_t i) {
    const Slot& slot = task.graph.slots[i];
    const bool may_be_user_input =
        is_made_up(slot.name) || slot.name.find('.') == std::string::npos;
    return slot.kind == SlotKind::kGraphInput && may_be_user_input;
  });
  if (task.options.inputs.empty() && (any_open || input_missing)) {
    refusal.add_remedy(
        {RemedyOption::kInputs, paste.empty() ? "NAMES" : fmt::format("{}", fmt::join(paste, ",")),
         others.empty() ? "to list all inputs that the caller supplies"
                        : "to list all inputs that the caller supplies; perhaps also some of " +
                              quote_list(others, kMaxListed)});
  }
}

namespace {

// The optimizer of torch's newer exporter gives small equal values the same name.
constexpr std::uint64_t kMaxMergedElements = 1024;

}  // namespace

void list_merged_constants(const MappingTask& task, Refusal& refusal) {
  std::vector<ErrorItem> items;
  for (std::uint32_t i = 0; i < task.fills.size(); ++i) {
    const Slot& slot = task.graph.slots[i];
    const bool mixed = task.fills[i] && slot.parameter_uses > 0 && slot.other_uses > 0 &&
                       !slot.never_merged && task.fills[i]->rule != Rule::kMap;
    if (mixed &&
        element_count(task.keys.keys[task.fills[i]->key].shape).value_or(0) <= kMaxMergedElements) {
      items.push_back(item_of(slot, use_text(slot)));
    }
  }
  if (items.empty()) {
    return;
  }
  refusal.add_list(ErrorKind::kMergedConstant, std::move(items));
  refusal.add_sentence(kPlainExport);
  refusal.add_remedy(
      {RemedyOption::kMap, "FILE", "if every node that reads the value should get the weight"});
}

void list_merged(std::vector<ErrorItem> items, Refusal& refusal) {
  if (items.empty()) {
    return;
  }
  refusal.add_list(ErrorKind::kMerged, std::move(items));
  refusal.add_sentence(
      "export the model with its trained weights, or with optimize=False, so that equal weights "
      "are not merged");
  refusal.add_remedy(
      {RemedyOption::kIgnore, "RE", "only for keys that are not weights of this model"});
}

}  // namespace onnx_external
