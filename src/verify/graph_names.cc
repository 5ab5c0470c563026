#include "verify/graph_names.h"

#include <cstddef>

#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/open_values.h"
#include "onnx/slots.h"
#include "verify/findings.h"

namespace onnx_external {
Result<GraphNames> GraphNames::of(const onnx::ModelProto& model) {
  TRY_ASSIGN(const auto graphs, list_graphs(model.graph()));
  GraphNames names;
  names.facts_ = collect_facts(graphs, model.ir_version());
  for (const GraphNode& graph : graphs) {
    names.parents_.push_back(graph.parent);
  }
  for (const Slot& slot : names.facts_.slots) {
    names.slots_.try_emplace({slot.graph, slot.name}, &slot);
  }
  return names;
}

std::vector<Finding> GraphNames::open_slots(const onnx::ModelProto& model,
                                            std::span<const ListedTensor> tensors) const {
  std::vector<Finding> findings;
  for (const Slot& slot : facts_.slots) {
    if (onnx_external::is_open(slot)) {
      findings.push_back({FindingCode::kOpenSlot, name_in_finding(slot.name), "", why_open(slot)});
    }
  }
  for (const OpenValue& place : open_values(model, tensors, parents_.size())) {
    findings.push_back({FindingCode::kOpenSlot, name_in_finding(place.name), "", place.why});
  }
  return findings;
}

bool GraphNames::is_open(std::uint32_t graph, std::string_view name) const {
  const auto found = slots_.find({graph, name});
  return found != slots_.end() && onnx_external::is_open(*found->second);
}

const Slot* GraphNames::find(std::uint32_t graph, std::string_view name) const {
  for (;; graph = parents_[graph]) {
    if (const auto found = slots_.find({graph, name}); found != slots_.end()) {
      return found->second;
    }
    if (graph == 0) {
      return nullptr;
    }
  }
}

std::optional<std::pair<std::uint32_t, std::string>> GraphNames::shared_initializer(
    std::uint32_t graph, std::string_view name) const {
  const auto own = slots_.find({graph, name});
  const Slot* slot = own == slots_.end() ? nullptr : own->second;
  for (std::size_t steps = 0;
       slot != nullptr && slot->kind == SlotKind::kIdentityOutput && steps < facts_.slots.size();
       ++steps) {
    slot = find(slot->graph, slot->merged_into);
    if (slot != nullptr && slot->kind == SlotKind::kInitializer) {
      return std::pair(slot->graph, slot->name);
    }
  }
  return std::nullopt;
}

}  // namespace onnx_external
