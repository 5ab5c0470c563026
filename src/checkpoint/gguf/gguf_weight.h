// Describes a weight of transformers as rows of stored tensors in a GGUF model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/tensor.h"

namespace onnx_external {

// The rows of stored tensors that make up a weight or a bias. A row is the last dimension of a
// stored tensor. If single values are reordered, as in a bias, each value is a row.
struct GgufWeight {
  std::string name;
  // Indices of stored tensors of equal shapes. If there are two tensors, their rows alternate.
  std::vector<std::size_t> from;
  // For each stored tensor, the index of a float32 tensor. It has one factor for all rows, or one
  // factor for each of several equal parts.
  std::vector<std::optional<std::size_t>> factors;
  std::uint64_t columns = 0;    // values in a row
  std::uint64_t first_row = 0;  // in each stored tensor
  std::uint64_t rows = 0;       // number of rows of each stored tensor
  // If not 0, the rows of heads are reordered: row (head, i, half) of the stored tensor is row
  // (head, half, i) of the weight.
  std::uint64_t heads = 0;
  bool minus_one = false;   // 1 is subtracted from each value
  bool transposed = false;  // the last two dimensions of `shape` are exchanged
  Shape shape;              // shape of the weight

  // Exchanges the last two dimensions.
  void turn();
  // Changes the description so that each value is a row.
  void split_rows();
};

// Returns all rows of the stored tensor with index `number`, unchanged.
[[nodiscard]] GgufWeight whole_gguf_tensor(std::string name, const Shape& shape,
                                           std::size_t number);

}  // namespace onnx_external
