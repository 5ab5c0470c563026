// Computes the shapes and sizes of the three tensors of a quantized matrix (codes, scales and zero
// points), in the layout that ONNX Runtime's MatMulNBits reads.
#pragma once

#include <cstdint>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// One of the three tensors. It has as many rows as the matrix, without gaps between them.
struct PackedPart {
  DType dtype = DType::kUInt8;
  Shape shape;                  // empty if the scheme has no such tensor
  std::uint64_t row_bytes = 0;  // bytes for one row of the matrix
  std::uint64_t bytes = 0;      // bytes for all rows

  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};

// The layout of a matrix with N rows and K columns, where nb = ceil(K / block).
struct PackedLayout {
  std::uint64_t blocks = 0;  // nb
  PackedPart codes;          // uint8 [N, nb, block * bits / 8]: codes along K, the first in the low
                             // bits
  PackedPart scales;         // Scheme::scales [N, nb]
  // uint8 [N, ceil(nb * bits / 8)], packed like the codes. Empty if the scheme is symmetric. If the
  // scheme has terms, this is the tensor of terms, with the type and shape of the scales.
  PackedPart zero_points;

  [[nodiscard]] std::uint64_t bytes() const {
    return codes.bytes + scales.bytes + zero_points.bytes;
  }
  friend bool operator==(const PackedLayout&, const PackedLayout&) = default;
};

// Computes the layout of a matrix. Errors are those of check_scheme(). Also fails with kCorrupt for
// negative dimensions, and if the three tensors together have more than 2^63-1 bytes.
[[nodiscard]] Result<PackedLayout> packed_layout(const Scheme& scheme, std::int64_t rows,
                                                 std::int64_t columns);

}  // namespace onnx_external
