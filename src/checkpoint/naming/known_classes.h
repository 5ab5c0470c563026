// Lists the classes whose objects the commands and the Python package flatten to named tensors.
#pragma once

#include "onnx_external/class_flattening.h"

namespace onnx_external {

// transformers' caches and outputs: register_cache_classes(). Made once; safe from any thread.
[[nodiscard]] const ClassFlattening& known_classes();

}  // namespace onnx_external
