// Determines, from the shape of a tensor of scales, to which rows and columns of a weight each
// scale applies.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/quantized/matrix_finder.h"

namespace onnx_external {

// The size, as stated in a config, of the block to which one scale applies.
struct SaidBlock {
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> columns;
};

// Sets `matrix.scales`, `group` and `groups`. The tensor has one scale in total, one per matrix,
// row, or group of a row, or one per block of rows and columns. Blocks start at the first row and
// column of each matrix, and the last blocks may be smaller. Requires: matrices, rows and columns
// are set. Errors: kCorrupt.
[[nodiscard]] Status set_scale_table(const MatrixFinder& finder, QuantizedMatrix& matrix,
                                     const TensorView& scales, const SaidBlock& said);

// Returns values that are arranged like the scales, such as zero points, but have no second-level
// factors.
[[nodiscard]] GroupNumbers numbers_like_scales(const MatrixFinder& finder,
                                               const QuantizedMatrix& matrix,
                                               const TensorView& numbers);

// Returns codes that are stored in rows, either one code per byte or `bits` bits per code without
// gaps.
[[nodiscard]] PackedCodes codes_in_rows(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                                        const TensorView& view, std::uint32_t bits);

// Returns a matrix for codes in a view [N, K] or [E, N, K], where each element holds `per_byte`
// codes along K. Returns nullopt for other ranks and for empty views.
[[nodiscard]] std::optional<QuantizedMatrix> matrix_of(const TensorView& view,
                                                       std::uint64_t per_byte);

// Returns "module.weight", or "weight" for the root module.
[[nodiscard]] std::string weight_name(const std::string& module);
// Returns the name of the weight to which `codes` belong. This is "module.weight", except that the
// names of stacked experts have no ".weight": "experts.gate_up_proj".
[[nodiscard]] std::string weight_name(const std::string& module, const TensorView& codes);

}  // namespace onnx_external
