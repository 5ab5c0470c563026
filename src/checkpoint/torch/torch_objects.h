// Interprets the symbols in a torch pickle: which objects are tensors, and which are dicts.
//
// docs/formats.md lists the symbols. Pure functions, safe from any thread.
#pragma once

#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether an object was made by one of torch's rebuild functions, even if this reader
// cannot read it.
[[nodiscard]] bool is_torch_tensor(const Pickle& pickle, NodeId id);

// Returns whether an object is such a tensor, or a numpy array or scalar.
[[nodiscard]] bool is_tensor(const Pickle& pickle, NodeId id);

// Returns whether a value is a dict, an OrderedDict, or another object on which items were set.
[[nodiscard]] bool is_dict(const Pickle& pickle, NodeId id);

// Returns the (key, value) pairs of a dict in order, however it was pickled, including duplicate
// keys. kUnsupported if an OrderedDict is made from anything but pairs or another dict. Requires:
// is_dict(pickle, id).
using Items = std::vector<std::pair<NodeId, NodeId>>;
[[nodiscard]] Result<Items> dict_items(const Pickle& pickle, NodeId id);

// Returns whether a value is an object other than a plain value or a torch.Size.
[[nodiscard]] bool is_opaque(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
