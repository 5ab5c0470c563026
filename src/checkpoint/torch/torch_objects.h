// Interprets the symbols in a torch pickle: which objects are tensors, and which are dicts.
//
// docs/formats.md lists the symbols. All functions are pure and may be called from any thread.
#pragma once

#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether an object is the result of one of torch's rebuild functions, even if this library
// cannot read it.
[[nodiscard]] bool is_torch_tensor(const Pickle& pickle, NodeId id);

// Returns whether is_torch_tensor() is true for an object, or the object is a numpy array or
// scalar.
[[nodiscard]] bool is_tensor(const Pickle& pickle, NodeId id);

// Returns whether a value is a dict, an OrderedDict, or another object on which items were set.
[[nodiscard]] bool is_dict(const Pickle& pickle, NodeId id);

// Returns the (key, value) pairs of a dict in order, including duplicate keys. Fails with
// kUnsupported if an OrderedDict is constructed from other values than pairs or another dict.
// Requires: is_dict(pickle, id).
using Items = std::vector<std::pair<NodeId, NodeId>>;
[[nodiscard]] Result<Items> dict_items(const Pickle& pickle, NodeId id);

// Returns whether a value is an object that is neither a plain value nor a torch.Size.
[[nodiscard]] bool is_opaque(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
