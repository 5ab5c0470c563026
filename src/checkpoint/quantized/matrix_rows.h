// Reads the codes, scales and zero points of quantized weights (quantized_matrix.h), or their
// dequantized values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// A block of a weight, with the rows [row, row + rows), counted over all matrices, and the columns
// [column, column + columns).
struct MatrixBlock {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t column = 0;
  std::uint64_t columns = 0;
};

// The codes, scales, zero points and minima in a block, which covers the groups [first_group,
// first_group + groups).
struct BlockParts {
  std::vector<std::uint8_t> codes;  // [rows, columns], unsigned
  std::uint64_t first_group = 0;
  std::uint64_t groups = 0;
  std::vector<double> scales;  // [rows, groups]
  std::vector<double> zeros;   // [rows, groups]; empty if all zero points are QuantizedMatrix::zero
  std::vector<double> minima;  // [rows, groups]; empty if there are none
};

// Buffers for whole rows of a matrix with blocks, in the layout of MatMulNBits.
struct KeptParts {
  std::span<std::byte>
      codes;  // 4 or 8 bits per code, the first in the low bits; the middle is 2^(bits-1)
  std::span<std::byte> scales;  // float32 [rows, groups]
  // Float32 [rows, groups]: (middle - z) * s + b; empty if there is no b.
  std::span<std::byte> terms;
};

// Reads blocks of a matrix, and checks the data while reading. The group of each column and the
// values that apply to whole matrices are kept in memory. Immutable; read() may be called from
// several threads at once.
class MatrixRows {
 public:
  // Opens a matrix, and reads the group of each column if the checkpoint stores these groups.
  // Errors: kCorrupt if a stored group does not exist; kIo.
  [[nodiscard]] static Result<MatrixRows> open(std::shared_ptr<const QuantizedMatrix> matrix);

  [[nodiscard]] const QuantizedMatrix& matrix() const { return *matrix_; }

  // Returns the group of each column (act-order), or an empty list if column k is in group k /
  // group.
  [[nodiscard]] const std::vector<std::uint32_t>& group_of_column() const { return order_; }

  // Reads a block. Needs memory for the bytes read, about 1 byte per code, and 8 bytes per scale,
  // zero point or minimum. Errors: kIo, kCorrupt. Requires: the block is inside the matrix and not
  // empty.
  [[nodiscard]] Status read(const MatrixBlock& block, BlockParts& parts) const;

  // Reads the scales and minima of a block and, if `with_zeros` is true, its zero points. `codes`
  // is left unchanged.
  [[nodiscard]] Status read_groups(const MatrixBlock& block, BlockParts& parts,
                                   bool with_zeros = true) const;

  // Reads a block of the weight as floats, row-major.
  [[nodiscard]] Status read_floats(const MatrixBlock& block, std::span<float> out) const;

 private:
  explicit MatrixRows(std::shared_ptr<const QuantizedMatrix> matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] Status read_order();

  std::shared_ptr<const QuantizedMatrix> matrix_;
  std::vector<std::uint32_t> order_;
  std::vector<double> column_factors_;
  std::vector<double> second_;  // one second-level factor of the scales per matrix
};

// Returns a source of the weight's bytes as float32 [matrices, rows, columns]. A read needs at most
// a few MiB of memory.
[[nodiscard]] ReadSource matrix_floats(std::shared_ptr<const QuantizedMatrix> matrix);

}  // namespace onnx_external
