// Reads the parts of quantized weights (quantized_matrix.h), and their floats.
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

// A block of a matrix: rows [row, row + rows) of all matrices, columns [column, column + columns).
struct MatrixBlock {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t column = 0;
  std::uint64_t columns = 0;
};

// The parts of a block. Its groups are [first_group, first_group + groups).
struct BlockParts {
  std::vector<std::uint8_t> codes;  // [rows, columns], unsigned
  std::uint64_t first_group = 0;
  std::uint64_t groups = 0;
  std::vector<double> scales;  // [rows, groups]
  std::vector<double> zeros;   // [rows, groups]; empty: QuantizedMatrix::zero for all
  std::vector<double> minima;  // [rows, groups]; empty: none
};

// Whole rows of a matrix with blocks, as MatMulNBits takes them.
struct KeptParts {
  std::span<std::byte>
      codes;  // of 4 or 8 bits, the first in the low bits; the middle is 2^(bits-1)
  std::span<std::byte> scales;  // float32 [rows, groups]
  std::span<std::byte> terms;   // float32 [rows, groups]: (middle - z) * s + b; empty without b
};

// Reads blocks. It checks the data that it reads; in memory it keeps the groups of the columns and
// the numbers for whole matrices. Immutable; read() may be called from several threads at once.
class MatrixRows {
 public:
  // Reads the order of the columns. kCorrupt if it names a group that is not there, or kIo.
  [[nodiscard]] static Result<MatrixRows> open(std::shared_ptr<const QuantizedMatrix> matrix);

  [[nodiscard]] const QuantizedMatrix& matrix() const { return *matrix_; }

  // The group of each column, if that is not column / group (act-order). Empty otherwise.
  [[nodiscard]] const std::vector<std::uint32_t>& group_of_column() const { return order_; }

  // Memory: about 1 byte for a code, 8 for a number of a group, and the bytes read.
  // kIo, kCorrupt. Requires: the block is inside the matrix and not empty.
  [[nodiscard]] Status read(const MatrixBlock& block, BlockParts& parts) const;

  // Reads the data of groups, and leaves `codes` unchanged. Without `with_zeros`, `zeros` are
  // left out.
  [[nodiscard]] Status read_groups(const MatrixBlock& block, BlockParts& parts,
                                   bool with_zeros = true) const;

  // The weights of a block, row-major.
  [[nodiscard]] Status read_floats(const MatrixBlock& block, std::span<float> out) const;

 private:
  explicit MatrixRows(std::shared_ptr<const QuantizedMatrix> matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] Status read_order();

  std::shared_ptr<const QuantizedMatrix> matrix_;
  std::vector<std::uint32_t> order_;
  std::vector<double> column_factors_;
  std::vector<double> second_;  // of the scales, one for each matrix
};

// The bytes of the weight as float32 [matrices, rows, columns]. A read takes at most some MiB of
// memory.
[[nodiscard]] ReadSource matrix_floats(std::shared_ptr<const QuantizedMatrix> matrix);

}  // namespace onnx_external
