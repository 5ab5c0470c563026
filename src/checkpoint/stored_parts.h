// Lists quantized weights as their stored parts, for graphs that read these.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "onnx_external/checkpoint.h"
#include "onnx_external/dtype.h"

namespace onnx_external {

// A tensor that a graph takes.
struct TakenTensor {
  std::string_view name;
  std::optional<DType> dtype;
};

// If the graph takes stored parts (qweight, scales, ...) and not the floats of the weights, puts
// all parts into the places of the weights in the list of tensors. That is so if it takes a name,
// or one that ends with it, which only a part has; or a weight in the type of its codes. Requires:
// no derived tensors have been added.
void list_stored_parts(Checkpoint& checkpoint, std::span<const TakenTensor> taken);

}  // namespace onnx_external
