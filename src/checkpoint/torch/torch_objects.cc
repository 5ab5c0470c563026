#include "checkpoint/torch/torch_objects.h"

#include "base/bad_input.h"
#include "base/try.h"
#include "checkpoint/torch/numpy_arrays.h"

namespace onnx_external {
namespace {

// The argument of an OrderedDict: a dict, or a list of pairs (so Python 2 wrote them), or an
// OrderedDict that had its items set.
Status add_initial_items(const Pickle& pickle, NodeId id, Items& pairs) {
  const bool is_dict = pickle.kind(id) == NodeKind::kDict;
  const bool is_plain =
      call_of(pickle, id) == Call::kOrderedDict && pickle.tuple(pickle.arguments(id)).empty();
  if (is_dict || is_plain) {
    pairs = pickle.items(id);
    return {};
  }
  const std::vector<NodeId> list = pickle.elements(id);
  const Arguments tuple = pickle.tuple(id);
  if (pickle.kind(id) != NodeKind::kList && pickle.kind(id) != NodeKind::kTuple) {
    return unsupported("an OrderedDict is made neither from pairs nor from a dict");
  }
  for (const NodeId pair : list.empty() ? tuple : Arguments(list)) {
    const std::vector<NodeId> in_list = pickle.elements(pair, 3);
    const Arguments parts = in_list.empty() ? pickle.tuple(pair) : Arguments(in_list);
    const NodeKind kind = pickle.kind(pair);
    if (parts.size() != 2 || (kind != NodeKind::kList && kind != NodeKind::kTuple)) {
      return unsupported("an OrderedDict is made from a list with an entry that is not a pair");
    }
    pairs.emplace_back(parts[0], parts[1]);
  }
  return {};
}

}  // namespace

bool is_torch_tensor(const Pickle& pickle, NodeId id) {
  switch (call_of(pickle, id)) {
    case Call::kTensor:
    case Call::kTensorV3:
    case Call::kQuantized:
    case Call::kSparse:
    case Call::kWrapped:
    case Call::kConverted:
    case Call::kFromType:
    case Call::kWrapper:
    case Call::kUnsupported:
      return true;
    default:
      return false;
  }
}

bool is_tensor(const Pickle& pickle, NodeId id) {
  return is_torch_tensor(pickle, id) || is_array(pickle, id);
}

bool is_dict(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kDict:
      return true;
    case NodeKind::kObject:
      return !is_tensor(pickle, id) &&
             (call_of(pickle, id) == Call::kOrderedDict || pickle.has_items(id));
    default:
      return false;
  }
}

Result<Items> dict_items(const Pickle& pickle, NodeId id) {
  Items pairs;
  if (call_of(pickle, id) == Call::kOrderedDict) {
    const Arguments arguments = pickle.tuple(pickle.arguments(id));
    if (arguments.size() > 1) {
      return unsupported("an OrderedDict is made from more than one value");
    }
    if (!arguments.empty()) {
      TRY(add_initial_items(pickle, arguments[0], pairs));
    }
  }
  const Items items = pickle.items(id);
  pairs.insert(pairs.end(), items.begin(), items.end());
  return pairs;
}

bool is_opaque(const Pickle& pickle, NodeId id) {
  switch (pickle.kind(id)) {
    case NodeKind::kGlobal:
    case NodeKind::kPersistent:
      return true;
    case NodeKind::kObject: {
      const Call call = call_of(pickle, id);
      return call != Call::kOrderedDict && call != Call::kSize && !is_tensor(pickle, id);
    }
    default:
      return false;
  }
}

}  // namespace onnx_external
