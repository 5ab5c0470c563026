// Computes the float values that the rows of a quantized matrix represent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "onnx_external/quantize.h"

namespace onnx_external {

// Rows of the three tensors of a quantized matrix (packed_layout.h). If the scheme has no zero
// points, `zero_points` is empty.
struct PackedRowsView {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> zero_points;
};

// Writes `columns` values for each row. A value is (code - zero point) * scale, rounded once to
// float32. If a scale is infinite or NaN, the value is the result of the multiplication. The
// rounding mode of the thread has no effect. Requires: check_scheme(scheme) succeeds; the sizes
// match packed_layout() for out.size() / columns rows.
void dequantize_rows(const Scheme& scheme, std::uint64_t columns, const PackedRowsView& rows,
                     std::span<float> out);

}  // namespace onnx_external
