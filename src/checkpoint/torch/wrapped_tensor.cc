#include "checkpoint/torch/wrapped_tensor.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::string_view kWholeTensor = "; save tensor.full_tensor() instead";
constexpr std::size_t kMostAttributes = 64;

// True for a class of torch.distributed, whose modules were renamed over the years.
bool is_distributed(const Pickle& pickle, NodeId id, std::string_view name) {
  return pickle.kind(id) == NodeKind::kGlobal && pickle.name(id) == name &&
         pickle.module(id).starts_with("torch.distributed.");
}

std::optional<NodeId> attribute(const Pickle& pickle, NodeId state, std::string_view name) {
  const auto attributes = attributes_of_state(pickle, state);
  const auto found = attributes.find(name);
  return found == attributes.end() ? std::nullopt : std::optional(found->second);
}

// Returns the placement of the tensor on each dimension of the mesh; nullopt if the state does not
// state it.
std::optional<Arguments> placements(const Pickle& pickle, NodeId state) {
  const auto spec = attribute(pickle, state, "_spec");
  if (!spec || pickle.kind(*spec) != NodeKind::kObject) {
    return std::nullopt;
  }
  const std::vector<NodeId> states = pickle.states(*spec, 2);
  const auto tuple = states.size() == 1 ? attribute(pickle, states[0], "placements") : std::nullopt;
  if (!tuple || pickle.tuple(*tuple).empty()) {
    return std::nullopt;
  }
  return pickle.tuple(*tuple);
}

// A shard or a copy holds values of the tensor; what is left are summands and the like.
bool holds_values(const Pickle& pickle, NodeId placement) {
  if (pickle.kind(placement) != NodeKind::kObject) {
    return false;
  }
  const NodeId type = pickle.callable(placement);
  return is_distributed(pickle, type, "Shard") || is_distributed(pickle, type, "_StridedShard") ||
         is_distributed(pickle, type, "Replicate");
}

}  // namespace

std::map<std::string_view, NodeId> attributes_of_state(const Pickle& pickle, NodeId state) {
  const Arguments pair = pickle.tuple(state);
  std::vector<NodeId> dicts(pair.begin(), pair.begin() + (pair.size() == 2 ? 2 : 0));
  if (dicts.empty()) {
    dicts.push_back(state);
  }
  std::map<std::string_view, NodeId> found;
  for (const NodeId dict : dicts) {
    if (pickle.kind(dict) != NodeKind::kDict) {
      continue;
    }
    for (const auto& [key, value] : pickle.items(dict, kMostAttributes)) {
      if (const auto name = pickle.string(key)) {
        found[*name] = value;
      }
    }
  }
  return found;
}

Result<LocalTensor> local_tensor(const Pickle& pickle, Arguments wrapper, NodeId state) {
  constexpr std::size_t kShape = 2;
  if (wrapper.size() <= kShape) {
    return corrupt("its rebuild call has too few arguments");
  }
  const NodeId type = wrapper[0];
  if (!is_distributed(pickle, type, "DTensor")) {
    return unsupported("it is a " + quote(type_name(pickle, type)) +
                       ", a class that wraps other tensors; save the plain tensor that it "
                       "represents instead, such as tensor.dequantize()");
  }
  const auto local = attribute(pickle, state, "_local_tensor");
  const auto places = placements(pickle, state);
  if (!local || pickle.kind(*local) != NodeKind::kObject || !places) {
    return unsupported("it is a DTensor in a form that is not supported" +
                       std::string(kWholeTensor));
  }
  if (!std::all_of(places->begin(), places->end(),
                   [&](NodeId placement) { return holds_values(pickle, placement); })) {
    return unsupported(
        "it is a DTensor whose processes hold parts of each value (Partial or similar)" +
        std::string(kWholeTensor));
  }
  TRY_ASSIGN(auto shape, read_integers(pickle, wrapper[kShape], "shape"));
  return LocalTensor{*local, std::move(shape)};
}

Status check_whole(const Shape& held, const Shape& whole) {
  if (held == whole) {
    return {};
  }
  return unsupported("it is a DTensor, and this file has only the " + shape_text(held) +
                     " of its " + shape_text(whole) +
                     " that one process held; save tensor.full_tensor(), or the state dict with "
                     "torch.distributed.checkpoint");
}

}  // namespace onnx_external
