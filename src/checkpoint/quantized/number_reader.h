// Reads the numbers of quantized weights: scales, fractional zero points, minima.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Rows [row, row + rows) of all matrices, groups [group, group + groups).
struct GroupRange {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t group = 0;
  std::uint64_t groups = 0;
};

// Fills `out` with the numbers of the range, [rows, groups]. `second`: the values of
// GroupNumbers::second. Errors of reading. Requires: check_matrix() has accepted them.
[[nodiscard]] Status read_numbers(const GroupNumbers& numbers, const QuantizedMatrix& matrix,
                                  const GroupRange& range, std::span<const double> second,
                                  std::vector<double>& out);

// The first `count` elements of a tensor as numbers.
[[nodiscard]] Result<std::vector<double>> read_first_numbers(const StoredTensor& stored,
                                                             std::uint64_t count);
// The same for integers, of int32 or int64.
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const StoredTensor& stored,
                                                              std::uint64_t count);

}  // namespace onnx_external
