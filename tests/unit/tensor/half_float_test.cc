#include "tensor/half_float.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace onnx_external {
namespace {

float widened(std::uint16_t half) {
  return std::bit_cast<float>(float_bits_of_half(half));
}

TEST(HalfFloat, WidensEveryFiniteNumberExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t exponent = (bits >> 10) & 0x1f;
    const std::uint32_t mantissa = bits & 0x3ff;
    if (exponent == 0x1f) {
      continue;
    }
    // By definition: 2^(e - 15) * 1.m, or 2^-14 * 0.m for subnormals.
    const double magnitude = exponent == 0
                                 ? std::ldexp(mantissa, -24)
                                 : std::ldexp(1024.0 + mantissa, static_cast<int>(exponent) - 25);
    const double expected = (bits & 0x8000) != 0 ? -magnitude : magnitude;
    const float found = widened(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(found, expected) << bits;
    ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << bits;
  }
}

TEST(HalfFloat, KeepsInfinitiesAndNans) {
  EXPECT_EQ(widened(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(widened(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_bits_of_half(0x7e00), 0x7fc00000U);
  EXPECT_EQ(float_bits_of_half(0xfe01), 0xffc02000U);
  EXPECT_EQ(float_bits_of_half(0x7c01), 0x7fc02000U);  // signalling: made quiet
}

TEST(HalfFloat, WidensARunInPlace) {
  const std::array<std::uint16_t, 3> halves = {0x3c00, 0xc000, 0x0001};
  std::array<std::byte, 12> bytes{};
  std::memcpy(bytes.data() + 6, halves.data(), 6);
  widen_halves_in_place(bytes);
  std::array<float, 3> floats{};
  std::memcpy(floats.data(), bytes.data(), 12);
  EXPECT_EQ(floats, (std::array<float, 3>{1.0F, -2.0F, 0x1p-24F}));
}

}  // namespace
}  // namespace onnx_external
