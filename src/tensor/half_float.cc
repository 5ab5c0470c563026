#include "tensor/half_float.h"

#include <bit>
#include <cstring>

namespace onnx_external {
namespace {

constexpr std::uint32_t kHalfMantissaBits = 10;
constexpr std::uint32_t kHalfMantissa = 0x3ff;
constexpr std::uint32_t kHalfExponent = 0x1f;
constexpr std::uint32_t kMantissaShift = 23 - kHalfMantissaBits;
constexpr std::uint32_t kBiasDifference = 127 - 15;
constexpr std::uint32_t kQuietNan = 0x7fc00000;

}  // namespace

std::uint32_t float_bits_of_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> kHalfMantissaBits) & kHalfExponent;
  const std::uint32_t mantissa = half & kHalfMantissa;
  if (exponent == kHalfExponent) {  // infinity, NaN
    return sign | (mantissa == 0 ? 0x7f800000 : kQuietNan | (mantissa << kMantissaShift));
  }
  if (exponent != 0) {
    return sign | ((exponent + kBiasDifference) << 23) | (mantissa << kMantissaShift);
  }
  // A subnormal half is mantissa * 2^-24, which every float can hold.
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
}

void widen_halves_in_place(std::span<std::byte> bytes) {
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
