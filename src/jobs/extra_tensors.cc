// Tensors beside a checkpoint.
#include <span>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx_external/save_external.h"

namespace onnx_external {
namespace {

// Initializers of the model keep their data, unless an extra tensor has their name.
void keep_existing(const GraphFacts& graph, const NameSet& extra, MappingOptions& mapping) {
  for (const Slot& slot : graph.slots) {
    if (slot.has_data && !extra.contains(slot.name)) {
      mapping.keep.push_back(slot.name);
    }
  }
}

}  // namespace

Result<Checkpoint> with_extra(std::span<const Model> models, const Checkpoint* checkpoint,
                              const Checkpoint& extra, SaveOptions& options) {
  NameSet names;
  for (const TensorView& tensor : extra.tensors()) {
    names.insert(tensor.name);
  }
  NameSet filled;  // an entry of the map is for all models that have the slot
  for (const Model& model : models) {
    for (const Slot& slot : model.facts().slots) {
      if (names.contains(slot.name) && (models.size() == 1 || filled.insert(slot.name).second)) {
        options.mapping.map.push_back({.slot = slot.name, .key = slot.name});
      }
    }
  }
  std::vector<const Checkpoint*> parts{&extra};
  if (checkpoint != nullptr) {
    parts.insert(parts.begin(), checkpoint);
  } else {
    for (const Model& model : models) {
      keep_existing(model.facts(), names, options.mapping);
    }
    options.mapping.keeps_rest = true;
    if (options.plan.existing_data == ExistingData::kStay) {
      options.plan.existing_data = ExistingData::kMove;
    }
  }
  OpenOptions join = options.open;
  join.overlay = true;
  return join_checkpoints(parts, join);
}

}  // namespace onnx_external
