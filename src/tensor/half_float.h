// IEEE half precision widened to single precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onnx_external {

// The bits of the float that equals the half with these bits. Exact for every number; a signalling
// NaN becomes quiet, as the processor's conversion has it.
[[nodiscard]] std::uint32_t float_bits_of_half(std::uint16_t half);

// `bytes` holds halves in its second half; afterwards it holds as many floats. Little-endian.
// Requires: bytes.size() is a multiple of 4.
void widen_halves_in_place(std::span<std::byte> bytes);

}  // namespace onnx_external
