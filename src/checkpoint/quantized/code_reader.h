// Unpacks the codes of quantized weights from any supported packing (CodePacking).
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/quantized/matrix_rows.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills `out` with the codes of a block of the weight, row-major. `columns` is the number of
// columns of the weight. `codes` may have a different shape with the same number of codes in the
// same row-major order. Errors are those of reading. Requires: check_matrix() has accepted the
// codes; the block is inside the weight.
[[nodiscard]] Status read_codes(const PackedCodes& codes, std::uint64_t columns,
                                const MatrixBlock& block, std::span<std::uint8_t> out);

}  // namespace onnx_external
