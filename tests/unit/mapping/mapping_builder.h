// Builds graphs and keys for mapping tests from short descriptions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mapping/verdict_lists.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {

inline const std::int32_t kFloatType = onnx_data_type(DType::kFloat32);

struct MappingCase {
  GraphFacts graph;
  MappingKeys keys;
  MappingOptions options;

  Slot& slot(const std::string& name, SlotKind kind, const std::optional<SymbolicShape>& shape) {
    Slot added;
    added.name = name;
    added.kind = kind;
    added.elem_type = kFloatType;
    added.shape = shape;
    added.consumer_count = 1;
    added.consumer_op = "MatMul";
    added.consumer_name = "node";
    added.has_data = kind == SlotKind::kInitializer;
    graph.slots.push_back(added);
    return graph.slots.back();
  }
  Slot& input(const std::string& name, const SymbolicShape& shape = {2, 2}) {
    Slot& added = slot(name, SlotKind::kGraphInput, shape);
    added.input_index = static_cast<std::uint32_t>(graph.graph_inputs.size());
    graph.graph_inputs.push_back(name);
    return added;
  }
  Slot& open(const std::string& name, const SymbolicShape& shape = {2, 2}) {
    return slot(name, SlotKind::kUndefinedName, shape);
  }
  MappingKey& key(const std::string& name, const Shape& shape = {2, 2}) {
    keys.keys.push_back({name, DType::kFloat32, shape, 0, std::nullopt});
    return keys.keys.back();
  }
  [[nodiscard]] Result<Mapping> map() const { return map_tensors(graph, keys, options); }

  // Returns the names with this verdict, or the message if the mapping fails.
  [[nodiscard]] std::vector<std::string> names_with(SlotVerdict verdict) const {
    const auto mapping = map();
    return mapping ? names_with(*mapping, verdict)
                   : std::vector<std::string>{mapping.error().message};
  }
  [[nodiscard]] std::vector<std::string> names_with(const Mapping& mapping,
                                                    SlotVerdict verdict) const {
    return onnx_external::names_with({verdict}, left_names(graph, mapping));
  }

  // Returns "slot<-key (rule)" for each pair.
  [[nodiscard]] std::vector<std::string> pairs() const {
    const auto mapping = map();
    if (!mapping) {
      return {mapping.error().message};
    }
    std::vector<std::string> texts;
    for (const MappedPair& pair : mapping->pairs) {
      const bool kept = pair.slot == kNoSlot;
      texts.push_back((kept ? "" : graph.slots[pair.slot].name) + "<-" + keys.keys[pair.key].name +
                      " (" + std::string(rule_name(pair.rule)) + ")");
    }
    return texts;
  }
};

}  // namespace onnx_external
