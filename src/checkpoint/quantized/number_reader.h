// Reads the numeric parameters of quantized weights: scales, fractional zero points and minima.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The groups [group, group + groups) in the rows [row, row + rows), which are counted over all
// matrices.
struct GroupRange {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t group = 0;
  std::uint64_t groups = 0;
};

// Fills `out` with the values in the range, as [rows, groups]. `second` are the values of
// GroupNumbers::second. Errors are those of reading. Requires: check_matrix() has accepted
// `numbers`.
[[nodiscard]] Status read_numbers(const GroupNumbers& numbers, const QuantizedMatrix& matrix,
                                  const GroupRange& range, std::span<const double> second,
                                  std::vector<double>& out);

// Reads the first `count` elements of a tensor as doubles.
[[nodiscard]] Result<std::vector<double>> read_first_numbers(const StoredTensor& stored,
                                                             std::uint64_t count);
// Reads the first `count` elements of an int32 or int64 tensor.
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const StoredTensor& stored,
                                                              std::uint64_t count);

}  // namespace onnx_external
