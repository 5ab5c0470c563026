// Decides which dict in a nested checkpoint is the state dict.
#pragma once

#include <string>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the only dict that has tensors as values, at the root or nested under string keys. If no
// dict has tensors as values, returns the only dict with tensors in lists and tuples. If the root
// is a list or tuple, it is also searched, and may itself be the result. Errors: kNotFound;
// kAmbiguous (the message lists the candidates).
[[nodiscard]] Result<NodeId> choose_only_dict(const Pickle& pickle, const ClassFlattening* classes);

// Returns the dict, list, tuple or flattened object at a dotted path of keys (including integer
// keys) and indices. Keys may themselves contain dots. Errors: kNotFound, kAmbiguous.
[[nodiscard]] Result<NodeId> choose_by_key(const Pickle& pickle, const ClassFlattening* classes,
                                           const std::string& key);

}  // namespace onnx_external
