// Reads weights of plain types that are not a view of their tensors: rows in another order, or
// norms that are stored plus one. (Those of blocks are read by block_matrix.h.)
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

// A stored tensor, all of which lies in the file.
struct GgufPlace {
  std::shared_ptr<const SourceFile> file;
  std::uint64_t offset = 0;
  ByteOrder order = ByteOrder::kLittle;
};

// Rows of stored tensors in the order that GgufWeight describes.
struct GgufRows {
  DType dtype = DType::kFloat32;
  std::vector<GgufPlace> from;  // at least one; the rows of several alternate
  std::uint64_t columns = 0;
  std::uint64_t first_row = 0;  // of each place
  std::uint64_t rows = 0;       // of each place
  std::uint64_t heads = 0;
  bool minus_one = false;

  [[nodiscard]] std::uint64_t row_bytes() const { return columns * byte_size(dtype); }
  // Returns whether the rows are one range of a file, in their order.
  [[nodiscard]] bool is_plain() const { return !minus_one && from.size() == 1 && heads == 0; }
  // The element type of the weight.
  [[nodiscard]] DType made_type() const { return minus_one ? DType::kFloat32 : dtype; }

  [[nodiscard]] std::size_t place_of(std::uint64_t row) const {
    return static_cast<std::size_t>(row % from.size());
  }
  [[nodiscard]] std::uint64_t stored_row(std::uint64_t row) const;
};

// The bytes of the weight, row-major and little-endian. A read takes about 2 MiB of memory.
[[nodiscard]] ReadSource gguf_numbers(GgufRows rows);

}  // namespace onnx_external
