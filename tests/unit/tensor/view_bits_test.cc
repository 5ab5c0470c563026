#include "tensor/view_bits.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <limits>

namespace onnx_external {
namespace {

TEST(ViewBits, ConjFlipsTheSignOfImaginaryParts) {
  std::array<std::complex<float>, 2> values{{{1.F, 2.F}, {-3.F, -0.F}}};
  apply_view_bits(DType::kComplex64, true, false, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], std::complex<float>(1.F, -2.F));
  EXPECT_EQ(values[1].real(), -3.F);
  EXPECT_FALSE(std::signbit(values[1].imag()));
}

TEST(ViewBits, NegFlipsTheSignOfBothParts) {
  std::array<std::complex<double>, 1> values{{{1.0, -2.0}}};
  apply_view_bits(DType::kComplex128, false, true, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], std::complex<double>(-1.0, 2.0));
}

TEST(ViewBits, NegThenConjLeavesTheImaginaryPart) {
  std::array<std::complex<float>, 1> values{{{1.F, 2.F}}};
  apply_view_bits(DType::kComplex64, true, true, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], std::complex<float>(-1.F, 2.F));
}

TEST(ViewBits, NegKeepsANaNANaN) {
  std::array<float, 3> values{1.5F, -0.F, std::numeric_limits<float>::quiet_NaN()};
  apply_view_bits(DType::kFloat32, false, true, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], -1.5F);
  EXPECT_FALSE(std::signbit(values[1]));
  EXPECT_TRUE(std::isnan(values[2]));
}

TEST(ViewBits, MeanNothingForIntegersAndRealConjugates) {
  EXPECT_FALSE(has_view_bits(DType::kInt32, false, true));
  EXPECT_FALSE(has_view_bits(DType::kFloat32, true, false));
  EXPECT_TRUE(has_view_bits(DType::kBFloat16, false, true));
  EXPECT_TRUE(has_view_bits(DType::kUInt8, false, false));
}

}  // namespace
}  // namespace onnx_external
