// IEEE half precision widened to single precision.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace onnx_external {

// The bits of the float that equals the half with these bits. Exact for every number; a signalling
// NaN becomes quiet, as the processor's conversion has it. Without branches, so that loops of it
// become vector code.
[[nodiscard]] inline std::uint32_t float_bits_of_half(std::uint16_t half) {
  constexpr std::uint32_t kHalfInfinity = 0x7c00;
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t sign = (half & 0x8000U) << 16;
  // The shifted bits are a float 2^112 times smaller; the product is exact, subnormals too.
  const float number = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t quiet = magnitude > kHalfInfinity ? 0x00400000 : 0;
  const std::uint32_t special = 0x7f800000 | (magnitude << 13) | quiet;
  return sign | (magnitude >= kHalfInfinity ? special : std::bit_cast<std::uint32_t>(number));
}

// `bytes` holds halves in its second half; afterwards it holds as many floats. Little-endian.
// Requires: bytes.size() is a multiple of 4.
void widen_halves_in_place(std::span<std::byte> bytes);

}  // namespace onnx_external
