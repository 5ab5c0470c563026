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

// Returns the block that the config states for the module, in the way of transformers or of
// compressed-tensors, or else `usual`.
[[nodiscard]] SaidBlock said_block(const QuantSettings& settings, const std::string& module,
                                   SaidBlock usual);

// Sets `matrix.scales`, `group` and `groups`. The tensor has one scale in total, one per matrix,
// row, or group of a row, or one per block of rows and columns. Blocks start at the first row and
// column of each matrix, and the last blocks may be smaller. Requires: matrices, rows and columns
// are set. Errors: kCorrupt.
[[nodiscard]] Status set_scale_table(const MatrixFinder& finder, QuantizedMatrix& matrix,
                                     const TensorView& scales, const SaidBlock& said);

// Like set_scale_table(), for one scale for each row and group of `group` columns, which may lie in
// the order of GPU kernels: in tiles of 128 rows and 4 groups, whose rows i, i + 32, i + 64 and
// i + 96 follow each other (torchao's MX and NVFP4 tensors). Errors: also kUnsupported, if the last
// tiles are padded in a way that cannot be undone.
[[nodiscard]] Status set_tiled_scales(const MatrixFinder& finder, QuantizedMatrix& matrix,
                                      const TensorView& scales, std::int64_t group);

// Returns whether scales of this type are exponents, the scales of MX formats.
[[nodiscard]] bool is_exponent(DType dtype);

// Returns whether the shape is that of such tiles for these rows and groups.
[[nodiscard]] bool is_tiled(const TensorView& scales, std::uint64_t rows, std::uint64_t groups);

// Checks that the module's "weight_zero_point", if there is one, is zero, as codes that are floats
// have no zero points. Errors: kCorrupt, kIo.
[[nodiscard]] Status check_no_zeros(const MatrixFinder& finder, const std::string& module);

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
