#include "checkpoint/gguf/gguf_weight.h"

#include <utility>

namespace onnx_external {

void GgufWeight::turn() {
  const std::size_t rank = shape.size();
  std::swap(shape[rank - 2], shape[rank - 1]);
  transposed = true;
}

void GgufWeight::split_rows() {
  rows *= columns;
  columns = 1;
}

GgufWeight whole_gguf_tensor(std::string name, const Shape& shape, std::size_t number) {
  GgufWeight weight;
  weight.name = std::move(name);
  weight.from = {number};
  weight.factors = {std::nullopt};
  weight.shape = shape;
  weight.columns = static_cast<std::uint64_t>(shape.back());
  weight.rows = 1;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    weight.rows *= static_cast<std::uint64_t>(shape[axis]);
  }
  return weight;
}

}  // namespace onnx_external
