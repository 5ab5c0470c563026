// Applies torch's lazy conj and neg bits, which torch sets on a tensor instead of changing the
// stored elements.
#pragma once

#include <cstddef>
#include <span>

#include "onnx_external/dtype.h"

namespace onnx_external {

// Returns whether the type supports the bits that are set. Floating and complex types of 2, 4, 8
// and 16 bytes support neg, and complex types support conj.
[[nodiscard]] bool has_view_bits(DType dtype, bool conj, bool neg);

// Negates every element if `neg` is set, then every imaginary part if `conj` is set, in place. Only
// sign bits are flipped, so zeros and NaNs change as in torch. Elements are little-endian.
// Requires: has_view_bits(dtype, conj, neg); `elements` holds whole elements.
void apply_view_bits(DType dtype, bool conj, bool neg, std::span<std::byte> elements);

}  // namespace onnx_external
