// Which mapping of a nested checkpoint is the state dict.
#pragma once

#include <string>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/class_flattening.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The only mapping with tensors as values, at the root or below it through string keys; where no
// mapping has any, the only one that holds tensors in lists and tuples. A list or tuple at the root
// is looked through, and may itself be what holds them.
// kNotFound; kAmbiguous, listing the candidates.
[[nodiscard]] Result<NodeId> choose_only_mapping(const Pickle& pickle,
                                                 const ClassFlattening* classes);

// The mapping, list, tuple or flattening object at a dotted path of keys and indexes, integer keys
// included; keys may hold dots themselves. kNotFound, kAmbiguous.
[[nodiscard]] Result<NodeId> choose_by_key(const Pickle& pickle, const ClassFlattening* classes,
                                           const std::string& key);

}  // namespace onnx_external
