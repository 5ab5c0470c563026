// Shapes and sizes of the three tensors that a quantized matrix consists of: those that ONNX
// Runtime's MatMulNBits takes.
#pragma once

#include <cstdint>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// One of the three tensors. Its rows are those of the matrix, contiguous and without gaps.
struct PackedPart {
  DType dtype = DType::kUInt8;
  Shape shape;                  // empty: the scheme has no such tensor
  std::uint64_t row_bytes = 0;  // of a row of the matrix
  std::uint64_t bytes = 0;      // of all rows

  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};

// For a matrix of N rows and K columns, and nb = ceil(K / block).
struct PackedLayout {
  std::uint64_t blocks = 0;  // nb
  PackedPart codes;          // uint8 [N, nb, block * bits / 8]: along K, the first in the low bits
  PackedPart scales;         // Scheme::scales [N, nb]
  // uint8 [N, ceil(nb * bits / 8)], packed alike; none if symmetric. With terms, these: as scales.
  PackedPart zero_points;

  [[nodiscard]] std::uint64_t bytes() const {
    return codes.bytes + scales.bytes + zero_points.bytes;
  }
  friend bool operator==(const PackedLayout&, const PackedLayout&) = default;
};

// kInvalidArgument as for check_scheme(); kCorrupt for negative dimensions, and if the three
// tensors have more than 2^63-1 bytes together.
[[nodiscard]] Result<PackedLayout> packed_layout(const Scheme& scheme, std::int64_t rows,
                                                 std::int64_t columns);

}  // namespace onnx_external
