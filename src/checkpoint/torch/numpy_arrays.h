// Reads numpy arrays and scalars, whose bytes are in the pickle itself.
//
// Sources: numpy's ndarray.__reduce__, __reduce_ex__(5) and __setstate__, dtype.__reduce__.
#pragma once

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/result.h"

namespace onnx_external {

// True for a scalar and an ndarray (but not its subclasses), whatever the element type.
[[nodiscard]] bool is_array(const Pickle& pickle, NodeId id);

// kUnsupported for element types that are not numbers (objects, text, dates, records), and for
// arrays in an unusual form; kCorrupt for arguments of the wrong kind.
// Requires: is_array(pickle, id).
[[nodiscard]] Result<TensorDeclaration> declared_array(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
