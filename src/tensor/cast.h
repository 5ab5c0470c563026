// Converts floating-point elements from one type to another, exactly as torch's .to() does.
//
// Rounds to the nearest value, ties to even. Values that are too large become infinity, values that
// are too small become subnormal or zero, and a NaN remains a NaN (quiet, with its sign and the
// upper bits of its payload). Conversions go through float32, as in torch, so float64 to float16
// rounds twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "onnx_external/dtype.h"

namespace onnx_external {

enum class CastPath : std::uint8_t {
  kBest,      // AVX2 and F16C if the processor has them
  kPortable,  // plain loops, with the same results
};

// Converts all elements of `in` (little-endian) to `out`. The spans may have any alignment.
// Requires: can_cast_from(from), can_cast_to(to); both spans have the same number of elements and
// do not overlap.
void cast_elements(DType from, DType to, std::span<const std::byte> in, std::span<std::byte> out,
                   CastPath path = CastPath::kBest);

}  // namespace onnx_external
