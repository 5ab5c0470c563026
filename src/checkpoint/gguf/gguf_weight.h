// A weight of transformers as rows of stored tensors of a GGUF model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/tensor.h"

namespace onnx_external {

// Rows of stored tensors that are a weight, or a bias. A row of a stored tensor is its last
// dimension; for numbers whose order changes one by one, such as those of a bias, it is one number.
struct GgufWeight {
  std::string name;
  std::vector<std::size_t> from;  // stored tensors, of equal shapes; the rows of two alternate
  // For each of these: a tensor of float32 with a factor for all rows, or one for each of several
  // equal parts.
  std::vector<std::optional<std::size_t>> factors;
  std::uint64_t columns = 0;    // of a row
  std::uint64_t first_row = 0;  // of each stored tensor
  std::uint64_t rows = 0;       // of each stored tensor
  // With heads: row (head, i, half) of the stored tensor is row (head, half, i) of the weight.
  std::uint64_t heads = 0;
  bool minus_one = false;   // from each value
  bool transposed = false;  // the last two dimensions of `shape` are exchanged
  Shape shape;              // of the weight

  // Exchanges the last two dimensions.
  void turn();
  // Makes each number a row.
  void split_rows();
};

// All rows of stored tensor `number`, unchanged.
[[nodiscard]] GgufWeight whole_gguf_tensor(std::string name, const Shape& shape,
                                           std::size_t number);

}  // namespace onnx_external
