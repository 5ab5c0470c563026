// Reads GGUF weights of plain types that need a conversion, because their rows are in another order
// or because 1 was added to the weights of a norm. (block_matrix.h reads weights in quantized
// blocks.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/file.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/dtype.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// The position of a stored tensor. The whole tensor is inside the file.
struct GgufPlace {
  std::shared_ptr<const SourceFile> file;
  std::uint64_t offset = 0;
  ByteOrder order = ByteOrder::kLittle;
};

// Rows of stored tensors in the order that GgufWeight describes.
struct GgufRows {
  DType dtype = DType::kFloat32;
  std::vector<GgufPlace> from;  // at least one; if several, their rows alternate
  std::uint64_t columns = 0;
  std::uint64_t first_row = 0;  // in each tensor
  std::uint64_t rows = 0;       // number of rows of each tensor
  std::uint64_t heads = 0;
  bool minus_one = false;

  [[nodiscard]] std::uint64_t row_bytes() const { return columns * byte_size(dtype); }
  // Returns whether the weight is a single range of a file and needs no conversion.
  [[nodiscard]] bool is_plain() const { return !minus_one && from.size() == 1 && heads == 0; }
  // Returns the element type of the resulting weight.
  [[nodiscard]] DType made_type() const { return minus_one ? DType::kFloat32 : dtype; }

  [[nodiscard]] std::size_t place_of(std::uint64_t row) const {
    return static_cast<std::size_t>(row % from.size());
  }
  [[nodiscard]] std::uint64_t stored_row(std::uint64_t row) const;
};

// Returns a source of the weight's bytes, row-major and little-endian. A read needs about 2 MiB of
// memory.
[[nodiscard]] ReadSource gguf_numbers(GgufRows rows);

}  // namespace onnx_external
