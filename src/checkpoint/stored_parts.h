// Lists quantized weights as their stored codes, scales and zero points instead of floats, for
// graphs whose operators read those directly.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "onnx_external/checkpoint.h"
#include "onnx_external/dtype.h"

namespace onnx_external {

// A tensor that a graph needs.
struct TakenTensor {
  std::string_view name;
  std::optional<DType> dtype;
};

// If the graph uses stored parts (qweight, scales, ...) instead of the floats of the weights,
// replaces all quantized weights in the list of tensors by their parts. A graph uses parts if one
// of its names, or the end of one, is the name of a part and not of a weight; or if it uses a
// weight with the type of that weight's codes. Requires: no derived tensors have been added.
void list_stored_parts(Checkpoint& checkpoint, std::span<const TakenTensor> taken);

}  // namespace onnx_external
