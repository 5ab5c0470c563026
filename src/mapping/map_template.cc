// Makes the map file that a user completes after a failed or partial mapping.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/nearest_names.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

// Unused keys, grouped by form (type and shape).
class UnusedKeys {
 public:
  UnusedKeys(const MappingKeys& given, const Mapping& mapping) {
    const std::vector<MappingKey>& keys = given.keys;
    std::vector<bool> used(keys.size());
    for (const MappedPair& pair : mapping.pairs) {
      used[pair.key] = true;
    }
    for (std::uint32_t key = 0; key < keys.size(); ++key) {
      if (!used[key]) {
        by_form_[{onnx_data_type(keys[key].dtype), keys[key].shape}].push_back(keys[key].name);
      }
    }
  }

  // The nearest names first, the rest in the checkpoint's order. (In a hostile file, where the
  // search stops early, that may be all of them.)
  [[nodiscard]] std::vector<MapEntry> fitting(const Slot& slot) {
    std::vector<MapEntry> found;
    if (!slot.shape || slot.elem_type == 0) {
      return found;
    }
    Shape shape = shape_or(*slot.shape, -1);  // no key has a dimension of -1
    add(slot, shape, {}, found);
    if (shape.size() == 2) {
      std::swap(shape[0], shape[1]);
      add(slot, shape, {RecipeStep::transpose()}, found);
    }
    found.resize(std::min(found.size(), kMaxCandidates));
    return found;
  }

 private:
  void add(const Slot& slot, const Shape& shape, const Recipe& recipe,
           std::vector<MapEntry>& found) {
    const auto fitting = by_form_.find({slot.elem_type, shape});
    if (fitting == by_form_.end()) {
      return;
    }
    const std::vector<std::string_view>& names = fitting->second;
    NameSet listed;
    for (const std::size_t place : search_.of(slot.name, names, kMaxCandidates)) {
      listed.insert(names[place]);
      found.push_back({slot.name, std::string(names[place]), recipe});
    }
    for (std::size_t i = 0; i < names.size() && found.size() < 2 * kMaxCandidates; ++i) {
      if (!listed.contains(names[i])) {
        found.push_back({slot.name, std::string(names[i]), recipe});
      }
    }
  }

  std::map<std::pair<std::int32_t, Shape>, std::vector<std::string_view>> by_form_;
  NearestNames search_;
};

Mapping as_far_as_possible(const GraphFacts& graph, const MappingKeys& keys,
                           MappingOptions options) {
  options.partial = Partial::kAllow;
  options.unmatched = Unmatched::kSkip;
  auto mapping = map_tensors(graph, keys, options);
  if (mapping) {
    return *std::move(mapping);
  }
  Mapping nothing;  // everything is open, except slots with data and the caller's inputs
  for (const Slot& slot : graph.slots) {
    const bool is_open = slot.kind == SlotKind::kUndefinedName ||
                         (slot.kind == SlotKind::kInitializer && !slot.has_data);
    nothing.slots.push_back(is_open ? SlotVerdict::kMissing : SlotVerdict::kNotNeeded);
  }
  return nothing;
}

}  // namespace

MapTemplate map_template(const GraphFacts& graph, const MappingKeys& keys,
                         const MappingOptions& options, const ErrorDetails* refusal) {
  const Mapping mapping = as_far_as_possible(graph, keys, options);
  OwnedNameSet open;
  for (const std::uint32_t slot : mapping.slots_with({SlotVerdict::kMissing})) {
    open.insert(graph.slots[slot].name);
  }
  if (refusal != nullptr) {
    for (const ErrorList& list : refusal->lists) {
      for (const ErrorItem& item : list.items) {
        open.insert(item.name);
      }
    }
  }
  MapTemplate found;
  for (const MappedPair& pair : mapping.pairs) {
    const std::string& slot = graph.slots[pair.slot].name;
    found.map.push_back({slot, keys.keys[pair.key].name, pair.recipe});
    open.erase(slot);
  }
  UnusedKeys unused(keys, mapping);
  for (const Slot& slot : graph.slots) {
    if (open.erase(slot.name) > 0) {
      // No key of that shape has the value that was computed at export.
      const bool computed =
          is_invented_name(slot.name) || !slot.folded_from.empty() || slot.batch_norm_fused;
      found.open.push_back(
          {slot.name, form_of(slot), computed ? std::vector<MapEntry>() : unused.fitting(slot)});
    }
  }
  return found;
}

}  // namespace onnx_external
