#include "save/shape_check.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx/shape_conflict.h"

namespace onnx_external {
namespace {

bool is_known(const Slot& slot) {
  return slot.elem_type != 0 && slot.shape &&
         std::all_of(slot.shape->begin(), slot.shape->end(),
                     [](const auto& dim) { return dim.has_value(); });
}

std::string form_of(const ConflictingInput& input) {
  Slot slot;
  slot.elem_type = input.elem_type;
  slot.shape = input.shape;
  return form_of(slot);
}

std::string text_of(const onnx::NodeProto& node) {
  if (!node.name().empty() || node.output_size() == 0) {
    return node.op_type() + " " + quote(node.name());
  }
  return "the " + node.op_type() + " that makes " + quote(node.output(0));
}

// `keys`: of the weights that a checkpoint fills.
Error error_of(const ShapeConflict& conflict, const NameMap<std::string_view>& keys,
               std::string_view way_out) {
  std::string text;
  ErrorDetails details;
  details.lists.push_back({"inputs of " + text_of(*conflict.node), {}});
  for (const ConflictingInput& input : conflict.inputs) {
    const bool is_itself = input.weight.empty() || input.weight == input.name;
    const auto key = keys.find(input.weight);
    const std::string of_key = key == keys.end() ? "" : "of key " + quote(key->second);
    const std::string from =
        is_itself ? of_key
                  : "from weight " + quote(input.weight) + (of_key.empty() ? "" : " " + of_key);
    text += (text.empty() ? "" : ", ") + quote(input.name) + " " + form_of(input) +
            (from.empty() ? "" : " " + from);
    details.lists.front().items.push_back({std::string(input.name), form_of(input), from, {}});
  }
  if (!keys.empty()) {
    details.remedies.push_back({"map", "FILE", "to say which key fills which slot"});
  }
  return {ErrorCode::kMismatch,
          "weights contradict each other: " + text_of(*conflict.node) +
              " cannot have inputs of these shapes and types: " + text + "; " +
              std::string(way_out),
          std::make_shared<const ErrorDetails>(std::move(details))};
}

}  // namespace

Status check_shapes(const Model& model, std::uint32_t model_index,
                    std::span<const PlannedTensor> tensors) {
  const std::vector<Slot>& slots = model.facts().slots;
  std::vector<SuppliedValue> supplied;
  NameMap<std::string_view> keys;
  bool all_known = true;
  for (const PlannedTensor& tensor : tensors) {
    if (tensor.model_index == model_index && tensor.slot < slots.size() &&
        slots[tensor.slot].graph == 0) {
      const Slot& slot = slots[tensor.slot];
      all_known = all_known && is_known(slot);
      supplied.push_back({slot.name, tensor.data_type, tensor.dims});
      keys.emplace(slot.name, tensor.key);
    }
  }
  if (all_known) {
    return {};
  }
  const auto conflict = find_shape_conflict(model.proto().graph(), supplied);
  return conflict ? Status(fail(error_of(*conflict, keys,
                                         "give the checkpoint that belongs to this graph")))
                  : Status();
}

Status check_shapes(const Model& model) {
  const auto conflict = find_shape_conflict(model.proto().graph(), {});
  return conflict
             ? Status(fail(error_of(*conflict, {}, "add() the weights that belong to this graph")))
             : Status();
}

}  // namespace onnx_external
