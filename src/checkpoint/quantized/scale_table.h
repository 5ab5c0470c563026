// Recognizes by its shape which rows and columns each scale of a weight applies to.
#pragma once

#include <cstdint>
#include <optional>

#include "checkpoint/quantized/matrix_finder.h"

namespace onnx_external {

// The block of a scale, as a config states it.
struct SaidBlock {
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> columns;
};

// Sets `matrix.scales`, group and groups from a tensor of one number; of one for each matrix, row,
// or group of a row; or of one for each block of rows and columns, counted from the first of each
// matrix, the last ones cut. Requires: matrices, rows and columns are set. kCorrupt.
[[nodiscard]] Status set_scale_table(const MatrixFinder& finder, QuantizedMatrix& matrix,
                                     const TensorView& scales, const SaidBlock& said);

// Numbers that have the places of the scales, such as zero points, without their factors.
[[nodiscard]] GroupNumbers numbers_like_scales(const MatrixFinder& finder,
                                               const QuantizedMatrix& matrix,
                                               const TensorView& numbers);

// Codes of a byte each, or of `bits` bits without gaps, in rows.
[[nodiscard]] PackedCodes codes_in_rows(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                                        const TensorView& view, std::uint32_t bits);

// A matrix of the codes in the view [N, K], or [E, N, K]; `per_byte` of them share one of its
// elements along K. Nullopt for other ranks, or an empty one.
[[nodiscard]] std::optional<QuantizedMatrix> matrix_of(const TensorView& view,
                                                       std::uint64_t per_byte);

// "module.weight", or "weight" at the root.
[[nodiscard]] std::string weight_name(const std::string& module);
// The same for the weight of `codes`; stacked experts have no ".weight": "experts.gate_up_proj".
[[nodiscard]] std::string weight_name(const std::string& module, const TensorView& codes);

}  // namespace onnx_external
