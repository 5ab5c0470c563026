// Interprets the symbols in a torch pickle: which objects are tensors and which are dicts.
//
// docs/formats.md lists them. Pure; any thread.
#pragma once

#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"

namespace onnx_external {

// True for an object made by one of torch's rebuild functions, readable or not.
[[nodiscard]] bool is_torch_tensor(const Pickle& pickle, NodeId id);

// Also true for numpy arrays and scalars.
[[nodiscard]] bool is_tensor(const Pickle& pickle, NodeId id);

// True for a dict, an OrderedDict, and any other object that had items set on it.
[[nodiscard]] bool is_dict(const Pickle& pickle, NodeId id);

// Its (key, value) pairs in order, however they were pickled, with duplicate keys. kUnsupported if
// an OrderedDict is made from anything but pairs or another dict.
// Requires: is_dict(pickle, id).
using Items = std::vector<std::pair<NodeId, NodeId>>;
[[nodiscard]] Result<Items> dict_items(const Pickle& pickle, NodeId id);

// True for objects other than plain values and torch.Size.
[[nodiscard]] bool is_opaque(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
