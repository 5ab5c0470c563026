// Decides which dict of a nested checkpoint is the state dict.
#pragma once

#include <string>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The only dict with tensors as values, at the root or below it through string keys; if no
// dict has any, the only one that holds tensors in lists and tuples. A list or tuple at the root
// is searched as well, and may itself be the one that holds them. kNotFound; kAmbiguous lists the
// candidates.
[[nodiscard]] Result<NodeId> choose_only_dict(const Pickle& pickle, const ClassFlattening* classes);

// The dict, list, tuple or flattening object at a dotted path of keys (also integer ones) and
// indices. Keys may themselves contain dots. kNotFound, kAmbiguous.
[[nodiscard]] Result<NodeId> choose_by_key(const Pickle& pickle, const ClassFlattening* classes,
                                           const std::string& key);

}  // namespace onnx_external
