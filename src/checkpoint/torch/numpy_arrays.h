// Reads numpy arrays and scalars, whose bytes are stored in the pickle itself.
//
// Sources: numpy's ndarray.__reduce__, __reduce_ex__(5) and __setstate__, dtype.__reduce__.
#pragma once

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns whether a value is a numpy scalar or an ndarray of any element type. Subclasses of
// ndarray do not count.
[[nodiscard]] bool is_array(const Pickle& pickle, NodeId id);

// Reads the declaration of an array or scalar. Fails with kUnsupported for element types that are
// not numeric (objects, text, dates, records) and for arrays in an unusual form. Fails with
// kCorrupt for arguments of the wrong type. Requires: is_array(pickle, id).
[[nodiscard]] Result<TensorDeclaration> declared_array(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
