#include "checkpoint/torch/tensor_states.h"

#include <string>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

// Accepts attributes that are set on a tensor, but nothing that replaces its data.
Status check_attributes(const Pickle& pickle, NodeId attributes) {
  constexpr std::size_t kMaxAttributes = 64;
  TRY_ASSIGN(const auto items, few_items(pickle, attributes, kMaxAttributes, "state",
                                         "; save tensor.detach().clone() instead"));
  for (const auto& [key, value] : items) {
    const auto name = pickle.string(key);
    if (!name || *name == "data" || *name == "real" || *name == "imag") {
      return unsupported("its state sets " + quote(name.value_or("?")) +
                         "; save tensor.detach().clone() instead");
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::pair<NodeId, NodeId>>> few_items(const Pickle& pickle, NodeId id,
                                                         std::size_t most, std::string_view what,
                                                         std::string_view fix) {
  if (pickle.kind(id) == NodeKind::kNone) {
    return {};
  }
  auto items = pickle.items(id, most + 1);
  if (pickle.kind(id) != NodeKind::kDict || items.size() > most) {
    return unsupported("its " + std::string(what) + " is not a dict of at most " +
                       std::to_string(most) + " entries" + std::string(fix));
  }
  return items;
}

Status check_state(const Pickle& pickle, NodeId state) {
  const Arguments parts = pickle.tuple(state);
  if (parts.size() == 3 && pickle.boolean(parts[0])) {
    return {};
  }
  if (parts.size() != 2) {
    return check_attributes(pickle, state);
  }
  TRY(check_attributes(pickle, parts[0]));
  return check_attributes(pickle, parts[1]);
}

Status check_additions(const Pickle& pickle, NodeId tensor) {
  constexpr std::size_t kMaxStates = 4;
  if (pickle.has_items(tensor) || pickle.has_elements(tensor)) {
    return corrupt("the pickle adds items to a tensor");
  }
  const std::vector<NodeId> states = pickle.states(tensor, kMaxStates + 1);
  if (states.size() > kMaxStates) {
    return unsupported("more than " + std::to_string(kMaxStates) + " states are set on it");
  }
  for (const NodeId state : states) {
    TRY(check_state(pickle, state));
  }
  return {};
}

}  // namespace onnx_external
