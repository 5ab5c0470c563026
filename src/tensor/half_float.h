// Converts IEEE half precision to single precision.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace onnx_external {

// Converts the bits of a half to the bits of the float with the same value. The conversion is exact
// for every number. A signalling NaN becomes quiet, as in the processor's conversion. The function
// has no branches, so that compilers can vectorize loops that call it.
[[nodiscard]] inline std::uint32_t float_bits_of_half(std::uint16_t half) {
  constexpr std::uint32_t kHalfInfinity = 0x7c00;
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t sign = (half & 0x8000U) << 16;
  // The shifted bits are a float that is 2^112 times smaller. The product is exact, even for
  // subnormals.
  const float number = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t quiet = magnitude > kHalfInfinity ? 0x00400000 : 0;
  const std::uint32_t special = 0x7f800000 | (magnitude << 13) | quiet;
  return sign | (magnitude >= kHalfInfinity ? special : std::bit_cast<std::uint32_t>(number));
}

// Converts halves to floats in place. On entry, the second half of `bytes` contains the input; on
// return, all of `bytes` contains the floats. Both are little-endian. Requires: bytes.size() is a
// multiple of 4.
inline void widen_halves_in_place(std::span<std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(float);
  const std::byte* halves = bytes.data() + count * sizeof(std::uint16_t);
  for (std::size_t i = 0; i < count; ++i) {  // float i ends before half i + 1 begins
    std::uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof(half), sizeof(half));
    const std::uint32_t bits = float_bits_of_half(half);
    std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace onnx_external
