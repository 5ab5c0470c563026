#include "mapping/causes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/inserted_component.h"
#include "mapping/quantized_names.h"
#include "mapping/scale_keys.h"
#include "mapping/unfit_keys.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::size_t kShownNames = 3;
constexpr std::string_view kTakesFloats =
    "; the graph needs the float checkpoint that it was quantized from";
constexpr std::string_view kNeedsSettings =
    ", and its tensors alone do not determine how to read them; pass the folder with its settings, "
    "or the float checkpoint that it was quantized from";

std::vector<std::string_view> unused_names(const MappingTask& task) {
  std::vector<std::string_view> names;
  for (std::size_t key = 0; key < task.keys.keys.size(); ++key) {
    if (!task.key_used[key]) {
      names.push_back(task.key_names[key].name);
    }
  }
  return names;
}

// Scalars and vectors may be left over even if the graph has all weights.
bool has_unused_weight(const MappingTask& task) {
  for (std::size_t key = 0; key < task.keys.keys.size(); ++key) {
    if (!task.key_used[key] && task.keys.keys[key].shape.size() > 1) {
      return true;
    }
  }
  return false;
}

// Returns a slot without a key that an operator for quantized weights reads; null if there is none.
// Prefers a slot for a tensor of values to a slot for a scale.
const Slot* quantized_slot(const MappingTask& task) {
  const Slot* found = nullptr;
  for (std::size_t i = 0; i < task.graph.slots.size(); ++i) {
    const Slot& slot = task.graph.slots[i];
    const bool is_input = slot.kind == SlotKind::kGraphInput;
    if (task.fills[i] || is_input || !reads_quantized(slot.consumer_op)) {
      continue;
    }
    if (slot.has_data && slot.shape && slot.shape->size() > 1) {
      return &slot;
    }
    found = found == nullptr ? &slot : found;
  }
  return found;
}

// Keys with the name of a Constant node: the node's tensor is the weight.
std::vector<std::string> constant_keys(const MappingTask& task,
                                       const std::vector<std::string_view>& unused) {
  NameSet constants;
  for (const ConstantTensor& constant : task.graph.constants) {
    constants.insert(constant.name);
  }
  std::vector<std::string> names;
  for (const std::string_view name : unused) {
    if (constants.contains(name)) {
      names.emplace_back(name);
    }
  }
  return names;
}

// When no key fits a slot, Constant nodes with the shapes of keys are the weights, whatever their
// names.
std::vector<std::string> constants_like_keys(const MappingTask& task) {
  std::vector<std::string> names;
  if (std::any_of(task.fills.begin(), task.fills.end(),
                  [](const std::optional<Fill>& fill) { return fill.has_value(); })) {
    return names;
  }
  std::set<Shape> shapes;
  for (const MappingKey& key : task.keys.keys) {
    shapes.insert(key.shape);
  }
  for (const ConstantTensor& constant : task.graph.constants) {
    if (shapes.contains(constant.shape)) {
      names.push_back(constant.name);
    }
  }
  return names;
}

// Keys with the name of a value that a node computes from a fill value or a list of numbers.
std::vector<std::string> computed_keys(const MappingTask& task,
                                       const std::vector<std::string_view>& unused) {
  const NameSet defined(task.graph.defined_names.begin(), task.graph.defined_names.end());
  std::vector<std::string> names;
  for (const std::string_view name : unused) {
    if (defined.contains(name) && !task.slot_by_name.contains(name)) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::string constants_text(const MappingTask& task, const std::vector<std::string_view>& unused) {
  constexpr std::string_view kWayOut =
      ", which a checkpoint cannot replace; convert them to initializers first: "
      "onnx_ir.passes.common.LiftConstantsToInitializersPass";
  const std::vector<std::string> keys = constant_keys(task, unused);
  if (!keys.empty()) {
    return std::to_string(keys.size()) +
           (keys.size() == 1 ? " key is the value" : " keys are values") +
           " of Constant nodes in the graph: " + quote_list(keys, kShownNames) +
           std::string(kWayOut);
  }
  if (const auto computed = computed_keys(task, unused); !computed.empty()) {
    return "nodes of the graph compute the values of " + quote_list(computed, kShownNames) +
           ", which a checkpoint cannot replace; " + std::string(kPlainExport);
  }
  const std::vector<std::string> names = constants_like_keys(task);
  if (names.empty()) {
    return "";
  }
  return "the weights of the graph are in Constant nodes: " + quote_list(names, kShownNames) +
         std::string(kWayOut);
}

}  // namespace

std::string scales_text(const MappingTask& task, const std::vector<bool>& taken,
                        const std::vector<bool>& weights) {
  ScaleKeys scales(task, weights);
  for (std::uint32_t key = 0; key < task.keys.keys.size(); ++key) {
    if (const auto weight = taken[key] ? std::nullopt : scales.weight_of(key)) {
      const MappingKey& scaled = task.keys.keys[*weight];
      return "the checkpoint is quantized: " + quote(task.keys.keys[key].name) + " scales " +
             quote(scaled.name) + ", which is " + std::string(torch_name(scaled.dtype)) +
             std::string(is_read_with_settings(task.keys.keys[key].name) ? kNeedsSettings
                                                                         : kTakesFloats);
    }
  }
  return "";
}

std::string scales_text(const MappingTask& task, const std::vector<bool>& taken) {
  return scales_text(task, taken, std::vector<bool>(task.keys.keys.size(), true));
}

std::string cause_of(const MappingTask& task) {
  const std::vector<std::string_view> unused = unused_names(task);
  if (unused.empty()) {
    return "";
  }
  if (std::string cause = unfit_keys(task); !cause.empty()) {
    return cause;
  }
  const Slot* slot = quantized_slot(task);
  const auto keys = quantized_keys(unused);
  if (keys && slot == nullptr) {
    return "the checkpoint is quantized by " + keys->method + " (it has " + quote(keys->key) + ")" +
           std::string(keys->is_read ? kNeedsSettings : kTakesFloats);
  }
  if (const std::string scales = slot == nullptr ? scales_text(task, task.key_used) : "";
      !scales.empty()) {
    return scales;
  }
  if (slot != nullptr && !keys && has_unused_weight(task)) {
    return "the graph is quantized (" + quote(slot->name) + " is read by " + slot->consumer_op +
           "); use the checkpoint with the float graph, and quantize the result again";
  }
  return constants_text(task, unused);
}

void add_cause(const MappingTask& task, Refusal& refusal) {
  if (add_inserted_component(task, refusal)) {
    return;
  }
  if (const std::string cause = cause_of(task); !cause.empty()) {
    refusal.drop_advice();
    refusal.add_lead(cause);
  }
}

}  // namespace onnx_external
