// Lists quantized weights as their stored codes, scales and zero points instead of floats, for
// graphs whose operators read the stored tensors directly.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "onnx_external/checkpoint.h"
#include "onnx_external/dtype.h"

namespace onnx_external {

// A tensor that a graph uses.
struct TakenTensor {
  std::string_view name;
  std::optional<DType> dtype;
};

// If the graph uses stored parts (qweight, scales, ...) instead of the floats of the weights,
// replaces all quantized weights in the list of tensors by their parts. A graph uses parts in two
// cases: one of its names, or the end of one, is the name of a part but not of a weight; or the
// graph uses a weight with the element type of the weight's codes. Requires: no derived tensors
// have been added.
void list_stored_parts(Checkpoint& checkpoint, std::span<const TakenTensor> taken);

}  // namespace onnx_external
