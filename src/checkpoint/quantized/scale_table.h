// Finds out, from the shape of a tensor of scales, which rows and columns of a weight each scale
// applies to.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/quantized/matrix_finder.h"

namespace onnx_external {

// The block to which one scale applies, as a config states it.
struct SaidBlock {
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> columns;
};

// Sets `matrix.scales`, `group` and `groups`. The tensor has one scale; one per matrix, row, or
// group of a row; or one per block of rows and columns. Blocks are counted from the first row and
// column of each matrix, and the last ones may be cut. Requires: matrices, rows and columns are
// set. Errors: kCorrupt.
[[nodiscard]] Status set_scale_table(const MatrixFinder& finder, QuantizedMatrix& matrix,
                                     const TensorView& scales, const SaidBlock& said);

// Returns values that are arranged like the scales, such as zero points, without the factors of the
// scales.
[[nodiscard]] GroupNumbers numbers_like_scales(const MatrixFinder& finder,
                                               const QuantizedMatrix& matrix,
                                               const TensorView& numbers);

// Returns codes stored in rows: one per byte, or `bits` bits each without gaps.
[[nodiscard]] PackedCodes codes_in_rows(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                                        const TensorView& view, std::uint32_t bits);

// Returns a matrix of the codes in the view [N, K] or [E, N, K], where `per_byte` codes share an
// element along K. Nullopt for other ranks and for empty views.
[[nodiscard]] std::optional<QuantizedMatrix> matrix_of(const TensorView& view,
                                                       std::uint64_t per_byte);

// Returns "module.weight", or "weight" for the root module.
[[nodiscard]] std::string weight_name(const std::string& module);
// Returns the same for the weight to which `codes` belong; the names of stacked experts have no
// ".weight": "experts.gate_up_proj".
[[nodiscard]] std::string weight_name(const std::string& module, const TensorView& codes);

}  // namespace onnx_external
