#include "mapping/slot_roles.h"

#include <algorithm>

#include "onnx/graph_facts.h"
#include "onnx/tensor_list.h"
#include "onnx_external/dtype.h"

namespace onnx_external {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "folded_from" names one value, so one operator with one input was applied. If it reversed the
// shape, it was a Transpose. For a square matrix any such operator keeps the shape, but beyond
// kFoldLimit only Transpose is folded, and only for a MatMul. Our Python package states it.
bool is_transposed_copy(const Slot& slot) {
  if (slot.folded_from.size() != 1 || !slot.shape || slot.shape->size() != 2) {
    return false;
  }
  if (slot.transposed) {
    return true;
  }
  const auto rows = (*slot.shape)[0];
  const auto columns = (*slot.shape)[1];
  if (!rows || !columns) {
    return false;
  }
  const bool only_multiplied =
      slot.consumer_count > 0 && slot.matmul_second_count == slot.consumer_count;
  const bool is_large = *rows > 0 && *columns > kFoldLimit / *rows;
  return *rows != *columns || (is_large && only_multiplied);
}

SlotUse use_of_folded(const Slot& slot) {
  return is_transposed_copy(slot) ? SlotUse{SlotRole::kByName, slot.folded_from.front(), true}
                                  : SlotUse{SlotRole::kExplicit, slot.name, false};
}

bool is_weight(SlotOrigin origin) {
  return origin == SlotOrigin::kParameter || origin == SlotOrigin::kBuffer;
}

}  // namespace

bool states_origins(const GraphFacts& graph) {
  return std::any_of(graph.slots.begin(), graph.slots.end(), [](const Slot& slot) {
    return slot.origin != SlotOrigin::kUnstated && slot.origin != SlotOrigin::kUserInput;
  });
}

SlotUse use_of(const Slot& slot, bool graph_states_origins) {
  SlotUse use{SlotRole::kByName, slot.name, false};
  if (slot.batch_norm_fused) {
    use.role = SlotRole::kFused;
  } else if (slot.origin == SlotOrigin::kUserInput || has_symbolic_dimension(slot)) {
    use.role = SlotRole::kCallers;
  } else if (slot.kind == SlotKind::kIdentityOutput &&
             (slot.graph_output || graph_states_origins || is_invented_name(slot.name))) {
    use.role = SlotRole::kNone;
  } else if (!slot.folded_from.empty()) {
    use = use_of_folded(slot);
  } else if (graph_states_origins && !is_weight(slot.origin)) {
    use.role = SlotRole::kExplicit;
  }
  return use;
}

bool has_symbolic_dimension(const Slot& slot) {
  return slot.kind == SlotKind::kGraphInput && slot.shape &&
         std::any_of(slot.shape->begin(), slot.shape->end(),
                     [](const std::optional<std::int64_t>& dim) { return !dim; });
}

bool is_lifted_name(std::string_view name) {
  return name.starts_with("val_") && is_number(name.substr(4));
}

bool is_invented_name(std::string_view name) {
  const bool is_output = name.starts_with('/') && name.find("_output_") != std::string_view::npos;
  return name.find("::") != std::string_view::npos || is_output || is_number(name) ||
         is_lifted_name(name);
}

bool is_computed(const onnx::TensorProto& tensor) {
  return is_invented_name(tensor.name()) &&
         (!onnx_is_floating(tensor.data_type()) || element_count(dims_of(tensor)) == 1);
}

}  // namespace onnx_external
