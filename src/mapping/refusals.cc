#include "mapping/refusals.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

constexpr std::size_t kNearest = 2;
constexpr std::string_view kRunningMean = ".running_mean";

std::vector<std::string> key_names(const MappingTask& task, std::span<const std::uint32_t> keys) {
  std::vector<std::string> names;
  for (const std::uint32_t key : keys) {
    names.push_back(task.keys.keys[key].name);
  }
  return names;
}

std::vector<std::string> slot_names(const MappingTask& task, std::span<const std::uint32_t> slots) {
  std::vector<std::string> names;
  for (const std::uint32_t slot : slots) {
    names.push_back(task.graph.slots[slot].name);
  }
  return names;
}

std::vector<std::uint32_t> floating(const MappingTask& task, std::span<const std::uint32_t> keys) {
  std::vector<std::uint32_t> kept;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(kept),
               [&](std::uint32_t key) { return is_floating(task.keys.keys[key].dtype); });
  return kept;
}

// The module that holds a name: "layer1.0" for "layer1.0.bn1"; "" for a name of the root.
std::string_view parent_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

// A module M whose M.running_mean found no slot, nor anything else of M, while other modules did:
// the export folded BatchNorm into the layer before it.
std::optional<std::string> folded_batch_norm(const MappingTask& task, const Leftovers& leftovers) {
  const bool any = std::any_of(
      leftovers.keys.begin(), leftovers.keys.end(),
      [&](std::uint32_t key) { return task.key_names[key].name.ends_with(kRunningMean); });
  if (!any) {
    return std::nullopt;
  }
  NameSet with_matches;  // every module that holds a used key
  for (std::uint32_t key = 0; key < task.key_names.size(); ++key) {
    std::string_view module = task.key_names[key].name;
    while (task.key_used[key] && !module.empty()) {
      module = parent_of(module);
      if (!with_matches.insert(module).second) {
        break;  // and so are those around it
      }
    }
  }
  for (const std::uint32_t key : leftovers.keys) {
    const std::string_view name = task.key_names[key].name;
    const std::string_view module = parent_of(name);
    // Anywhere, not only beside it: in a Sequential of convolutions all that is near is folded too.
    if (name.ends_with(kRunningMean) && !with_matches.contains(module) &&
        with_matches.contains("")) {
      return task.keys.keys[key].name;
    }
  }
  return std::nullopt;
}

std::string fold_hint(const MappingTask& task, const Leftovers& leftovers) {
  const std::optional<std::string> key = folded_batch_norm(task, leftovers);
  return key ? " (" + quote(*key) +
                   " has no slot: BatchNorm was folded into other weights at export; export with "
                   "optimize=False, or with do_constant_folding=False and training=PRESERVE)"
             : "";
}

// True when element types keep even equal names apart.
bool equal_names_once_cast(const MappingTask& task) {
  for (std::uint32_t slot_name = 0; slot_name < task.slot_names.size(); ++slot_name) {
    const auto key = task.key_by_name.find(task.first_slot(slot_name).name);
    if (key && agrees_once_cast(task, slot_name, *key)) {
      return true;
    }
  }
  return false;
}

Status refuse_no_match(const MappingTask& task) {
  const bool any = std::any_of(task.fills.begin(), task.fills.end(),
                               [](const std::optional<Fill>& fill) { return fill.has_value(); });
  if (any) {
    return {};
  }
  std::vector<std::string> slots;
  for (const SlotName& name : task.slot_names) {
    if (name.open && task.graph.slots[name.slots.front()].kind != SlotKind::kIdentityOutput) {
      slots.push_back(task.graph.slots[name.slots.front()].name);
    }
  }
  std::vector<std::string> keys;
  for (const MappingKey& key : task.keys.keys) {
    keys.push_back(key.name);
  }
  if (keys.empty()) {
    return fail(ErrorCode::kNotFound, "the checkpoint has no tensors");
  }
  if (slots.empty()) {
    return fail(ErrorCode::kNotFound,
                "the graph has no slot to fill: no input that could be a weight, no undefined "
                "name, no initializer; export it with export_params=False and "
                "keep_initializers_as_inputs=True");
  }
  return fail(ErrorCode::kNotFound,
              "no key fits any slot: slots are " + quote_list(slots, kMaxListed) + ", keys are " +
                  quote_list(keys, kMaxListed) +
                  "; bring the names together with --rename or --map" +
                  (equal_names_once_cast(task) ? ", and convert the floats with --cast" : ""));
}

// A left-over key of exactly the slot's type and shape, when there is one only.
std::optional<std::uint32_t> only_fitting(const MappingTask& task, const Slot& slot) {
  std::optional<std::uint32_t> only;
  for (std::uint32_t key = 0; key < task.keys.keys.size(); ++key) {
    if (slot.shape && agrees(task, slot, task.keys.keys[key])) {
      if (only) {
        return std::nullopt;
      }
      only = key;
    }
  }
  return only;
}

// Plain for the operators that exist, quoted for anything else that a file may say.
std::string consumer_text(const Slot& slot) {
  const std::string& op = slot.consumer_op;
  if (op.empty()) {
    return "graph output";
  }
  const bool plain = std::all_of(op.begin(), op.end(),
                                 [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return (plain && op.size() <= kMaxQuotedBytes ? op : quote(op)) +
         (slot.consumer_name.empty() ? "" : " " + quote(slot.consumer_name));
}

std::string missing_text(const MappingTask& task, const Slot& slot,
                         std::span<const std::string> leftover_names) {
  std::string text = quote(slot.name) + " (" + form_of(slot);
  if (slot.kind == SlotKind::kIdentityOutput) {
    text += ", made equal to " + quote(slot.merged_into) + " at export";
  } else if (slot.consumer_count > 0) {
    text += ", used by " + consumer_text(slot);
    text +=
        slot.consumer_count > 1 ? " and " + std::to_string(slot.consumer_count - 1) + " more" : "";
  }
  text += ")";
  const std::vector<std::string> nearest = nearest_names(slot.name, leftover_names, kNearest);
  if (!nearest.empty()) {
    return text + ", nearest left-over key " + quote_list(nearest, kNearest);
  }
  if (const std::optional<std::uint32_t> fits = only_fitting(task, slot)) {
    text += ", of the shape of key " + quote(task.keys.keys[*fits].name);
  }
  return text;
}

// torch's optimizing exporter names constants that it lifts out of the graph val_0, val_1 ...
bool is_lifted_constant(std::string_view name) {
  return name.starts_with("val_") && name.size() > 4 &&
         name.find_first_not_of("0123456789", 4) == std::string_view::npos;
}

Status refuse_missing(const MappingTask& task, const Leftovers& leftovers) {
  const std::vector<std::uint32_t>& missing = leftovers.missing_slots;
  if (missing.empty()) {
    return {};
  }
  const std::vector<std::string> names = key_names(task, leftovers.keys);
  std::string text = std::to_string(missing.size()) +
                     (missing.size() == 1 ? " slot has no key: " : " slots have no key: ");
  bool input = false;
  bool lifted = false;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const Slot& slot = task.graph.slots[missing[i]];
    input |= slot.kind == SlotKind::kGraphInput;
    lifted |= slot.kind == SlotKind::kUndefinedName && is_lifted_constant(slot.name);
    if (i < kMaxListed) {
      text += (i > 0 ? "; " : "") + missing_text(task, slot, names);
    }
  }
  if (missing.size() > kMaxListed) {
    text += "; and " + std::to_string(missing.size() - kMaxListed) + " more";
  }
  if (!names.empty()) {
    text += "; left-over keys: " + quote_list(names, kMaxListed);
  }
  text += fold_hint(task, leftovers);
  text += lifted ? " (names like 'val_7' are constants that an optimizing export lifts out of the "
                   "graph; export with optimize=False to keep them in it)"
                 : "";
  return fail(ErrorCode::kNotFound, text + "; give their keys with --map or --tie SLOT=KEY" +
                                        (input ? ", name the caller's inputs with --inputs" : "") +
                                        ", or leave them without data with --partial");
}

bool is_big_float(const Slot& slot) {
  if (!onnx_is_floating(slot.elem_type) || !slot.shape) {
    return false;
  }
  return std::any_of(slot.shape->begin(), slot.shape->end(),
                     [](const std::optional<std::int64_t>& dim) { return dim != 1; });
}

Status refuse_mixed(const MappingTask& task, const Leftovers& leftovers) {
  std::vector<std::uint32_t> kept;
  std::copy_if(leftovers.kept_slots.begin(), leftovers.kept_slots.end(), std::back_inserter(kept),
               [&](std::uint32_t slot) { return is_big_float(task.graph.slots[slot]); });
  const std::vector<std::uint32_t> keys = floating(task, leftovers.keys);
  if (kept.empty() || keys.empty()) {
    return {};
  }
  return fail(ErrorCode::kNotFound, "old and new weights would be mixed: initializers " +
                                        quote_list(slot_names(task, kept), kMaxListed) +
                                        " keep their data, while keys " +
                                        quote_list(key_names(task, keys), kMaxListed) +
                                        " have no slot" + fold_hint(task, leftovers) +
                                        "; pair them with --map, or accept it with --partial");
}

// One number for all types that may be converted into each other.
std::int32_t comparable_type(const MappingTask& task, std::int32_t data_type) {
  const auto dtype = dtype_from_onnx(data_type);
  const bool castable = task.options.casts == Casts::kAllow && dtype && can_cast_to(*dtype);
  return castable ? onnx_data_type(DType::kFloat32) : data_type;
}

// Inputs that would pass for the caller's, were it not for BatchNorm having vanished: folded
// weights have the shapes of the keys that they were made from.
Status refuse_folded_inputs(const MappingTask& task, const Leftovers& leftovers) {
  if (!folded_batch_norm(task, leftovers) || !task.options.inputs.empty()) {
    return {};
  }
  std::set<std::pair<std::int32_t, SymbolicShape>> forms;  // of the left-over float keys
  for (const std::uint32_t key : floating(task, leftovers.keys)) {
    const MappingKey& left = task.keys.keys[key];
    forms.emplace(comparable_type(task, onnx_data_type(left.dtype)),
                  SymbolicShape(left.shape.begin(), left.shape.end()));
  }
  const NameSet left(leftovers.inputs_left.begin(), leftovers.inputs_left.end());
  for (const Slot& slot : task.graph.slots) {
    if (slot.kind != SlotKind::kGraphInput || !left.contains(slot.name) || !slot.shape) {
      continue;
    }
    if (forms.contains({comparable_type(task, slot.elem_type), *slot.shape})) {
      return fail(ErrorCode::kNotFound,
                  "graph input " + quote(slot.name) +
                      " has no key, but the type and shape of a left-over one, " + form_of(slot) +
                      fold_hint(task, leftovers) +
                      "; name the caller's inputs with --inputs, or accept it with --partial");
    }
  }
  return {};
}

// How many consumers stay with each slot once the Identity nodes of filled slots are gone.
std::vector<std::uint64_t> consumers_after(const MappingTask& task) {
  std::vector<std::uint64_t> consumers;
  for (const Slot& slot : task.graph.slots) {
    consumers.push_back(slot.consumer_count);
  }
  // An Identity stands after what it reads, so its own count is final when it is met from the end.
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

Status refuse_merged(const MappingTask& task, const Leftovers& leftovers) {
  if (leftovers.keys.empty()) {
    return {};
  }
  std::map<std::pair<DType, Shape>, std::uint32_t> left;
  for (const std::uint32_t key : leftovers.keys) {
    left.emplace(std::pair(task.keys.keys[key].dtype, task.keys.keys[key].shape), key);
  }
  const std::vector<std::uint64_t> consumers = consumers_after(task);
  for (std::uint32_t i = 0; i < task.graph.slots.size() && !left.empty(); ++i) {
    if (!task.fills[i] || consumers[i] < 2) {
      continue;
    }
    const MappingKey& used = task.keys.keys[task.fills[i]->key];
    const auto same = left.find(std::pair(used.dtype, used.shape));
    if (same == left.end()) {
      continue;
    }
    const Slot& slot = task.graph.slots[i];
    return fail(ErrorCode::kAmbiguous,
                "slot " + quote(slot.name) + " has " + std::to_string(consumers[i]) +
                    " consumers and key " + quote(task.keys.keys[same->second].name) +
                    ", of the same type and shape " + form_of(used) +
                    ", has no slot: the exporter may have merged two weights that were equal; "
                    "export the model with its trained weights, or accept it with --partial");
  }
  return {};
}

Status refuse_unmatched(const MappingTask& task, const Leftovers& leftovers) {
  if (task.options.unmatched == Unmatched::kError && !leftovers.keys.empty()) {
    return fail(ErrorCode::kNotFound, std::to_string(leftovers.keys.size()) +
                                          " keys have no slot: " +
                                          quote_list(key_names(task, leftovers.keys), kMaxListed) +
                                          "; leave them out with --unmatched skip");
  }
  if (task.options.unmatched != Unmatched::kKeep) {
    return {};
  }
  const NameSet defined(task.graph.defined_names.begin(), task.graph.defined_names.end());
  for (const std::uint32_t key : leftovers.keys) {
    const std::string& name = task.keys.keys[key].name;
    if (task.slot_by_name.contains(name) || defined.contains(name)) {
      return fail(ErrorCode::kInvalidArgument,
                  "--unmatched keep: the graph already defines " + quote(name) +
                      "; give the key another name with --rename, or leave such keys out with "
                      "--unmatched skip");
    }
  }
  return {};
}

}  // namespace

Status check_refusals(const MappingTask& task, const Leftovers& leftovers) {
  if (Status status = refuse_no_match(task); !status) {
    return status;
  }
  const bool strict = task.options.partial == Partial::kRefuse;
  for (const auto refuse : {refuse_missing, refuse_mixed, refuse_folded_inputs, refuse_merged}) {
    if (Status status = strict ? refuse(task, leftovers) : Status{}; !status) {
      return status;
    }
  }
  return refuse_unmatched(task, leftovers);
}

}  // namespace onnx_external
