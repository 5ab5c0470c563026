#include "save/completeness.h"

#include <utility>

#include "base/name_map.h"
#include "mapping/advice.h"
#include "onnx/graph_facts.h"
#include "onnx/model_access.h"
#include "onnx/open_values.h"

namespace onnx_external {
namespace {

// Names and tensors without a value, by kind.
struct LeftOpen {
  std::vector<ErrorItem> slots;   // names that nothing defines, initializers without data
  std::vector<ErrorItem> inputs;  // of the graph, which the mapping takes for weights
  std::vector<ErrorItem> others;  // OpenValue
};

LeftOpen left_open(const Model& model, const Mapping& mapping) {
  const std::vector<Slot>& slots = model.facts().slots;
  std::vector<bool> filled(slots.size());
  for (const MappedPair& pair : mapping.pairs) {
    if (pair.slot < filled.size()) {
      filled[pair.slot] = true;
    }
  }
  const NameSet left(mapping.slots_left.begin(), mapping.slots_left.end());
  LeftOpen found;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (filled[i] || !(is_open(slot) || (!left.empty() && left.contains(slot.name)))) {
      continue;
    }
    const bool is_input = slot.kind == SlotKind::kGraphInput;
    (is_input ? found.inputs : found.slots).push_back(item_of(slot, use_text(slot)));
  }
  for (const OpenValue& place : ModelAccess::open_values(model)) {
    found.others.push_back({place.name, place.form, place.why, {}});
  }
  return found;
}

}  // namespace

std::vector<std::string> names_left_open(const Model& model, const Mapping& mapping) {
  const LeftOpen found = left_open(model, mapping);
  std::vector<std::string> names;
  for (const auto* items : {&found.slots, &found.inputs, &found.others}) {
    for (const ErrorItem& item : *items) {
      names.push_back(item.name);
    }
  }
  return names;
}

Status check_complete(const Model& model, const Mapping& mapping, std::string_view source) {
  if (mapping.options.partial == Partial::kAllow) {
    return {};
  }
  LeftOpen found = left_open(model, mapping);
  Refusal refusal;
  if (!found.slots.empty()) {
    refusal.add_sentence(
        "no runtime opens a model that lacks them: " +
        std::string(source.empty() ? "give the checkpoint that has them, or a graph that holds its "
                                     "weights"
                                   : source));
  }
  if (!found.inputs.empty()) {
    std::string names;
    for (const ErrorItem& item : found.inputs) {
      names += (names.empty() ? "" : ",") + item.name;
    }
    names = found.inputs.size() > kMaxListed ? "NAMES" : names;
    refusal.add_sentence(
        "the exporter made inputs of them (export_params=False): give the checkpoint that has "
        "them");
    refusal.add_remedy({"inputs", std::move(names), "if whoever runs the model is to give them"});
  }
  if (!found.others.empty()) {
    refusal.add_sentence(
        "no checkpoint fills attributes, sparse initializers and names in functions: export the "
        "graph again, with their data");
  }
  refusal.add_list("weight of the graph has no data", "weights of the graph have no data",
                   "without data", std::move(found.slots));
  refusal.add_list("input of the graph has the name of a weight",
                   "inputs of the graph have the names of weights", "inputs that may be weights",
                   std::move(found.inputs));
  refusal.add_list("other value has no data", "other values have no data",
                   "in nodes and functions, without data", std::move(found.others));
  if (refusal.empty()) {
    return {};
  }
  refusal.add_remedy({"partial", "", "to save it all the same, as an incomplete model"});
  return fail(std::move(refusal).error(ErrorCode::kNotFound));
}

}  // namespace onnx_external
