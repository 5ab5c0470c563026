// Lists the classes of pickled objects that the commands and the Python package can flatten to
// named tensors.
#pragma once

#include "onnx_external/class_flattening.h"

namespace onnx_external {

// Returns the classes of transformers' caches and outputs (register_cache_classes()). The table is
// built once. Thread-safe.
[[nodiscard]] const ClassFlattening& known_classes();

}  // namespace onnx_external
