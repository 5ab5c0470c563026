#include "tensor/cast.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

namespace onnx_external {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename To, typename From>
std::vector<To> cast(DType from, DType to, const std::vector<From>& in,
                     CastPath path = CastPath::kBest) {
  std::vector<To> out(in.size());
  cast_elements(from, to, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)),
                path);
  return out;
}

// A type of `mantissa_bits` with a sign, whose least value above zero is 2^least and whose values
// end before 2^end. Everything by definition, in doubles, which hold all of it exactly.
struct Form {
  DType dtype;
  int mantissa_bits;
  int least;
  int end;
};
constexpr Form kHalf{DType::kFloat16, 10, -24, 16};
constexpr Form kBFloat{DType::kBFloat16, 7, -133, 128};

std::uint16_t nearest_bits(float value, const Form& form) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(value));
  const std::uint32_t infinity = 0x7fffU >> form.mantissa_bits << form.mantissa_bits;
  int exponent = 0;
  (void)std::frexp(magnitude, &exponent);  // in [0.5, 1) * 2^exponent
  const int quantum =
      magnitude == 0 ? form.least : std::max(exponent - 1 - form.mantissa_bits, form.least);
  const double steps = std::nearbyint(std::ldexp(magnitude, -quantum));  // ties to even
  if (std::isinf(magnitude) || std::ldexp(steps, quantum) >= std::ldexp(1.0, form.end)) {
    return static_cast<std::uint16_t>(sign | infinity);
  }
  // Neighbours of one sign have neighbouring bits, so counting the steps below gives them.
  const auto binades = static_cast<std::uint32_t>(quantum - form.least);
  return static_cast<std::uint16_t>(
      sign | ((binades << form.mantissa_bits) + static_cast<std::uint32_t>(steps)));
}

bool is_nan(std::uint16_t bits, const Form& form) {
  return (bits & 0x7fffU) > (0x7fffU >> form.mantissa_bits << form.mantissa_bits);
}

// Of all floats every 4093rd, or all of them on request: that takes an hour without optimization.
std::uint32_t sweep_step() {
  return std::getenv("ONNX_EXTERNAL_FULL_SWEEP") != nullptr ? 1 : 4093;
}

// Calls `check` with runs of floats that cover all bit patterns in that step.
template <typename Check>
void sweep(const Check& check) {
  constexpr std::size_t kRun = 1 << 16;
  std::vector<float> run;
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += sweep_step()) {
    run.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    if (run.size() == kRun) {
      check(run);
      run.clear();
    }
  }
  check(run);
}

// Every value of the type, what lies half-way to the next one, and the floats beside that.
std::vector<float> boundaries(const Form& form) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto at = [&](std::uint32_t place) {
      return cast<float>(form.dtype, DType::kFloat32,
                         std::vector{static_cast<std::uint16_t>(place)})[0];
    };
    const float half_way =
        static_cast<float>((static_cast<double>(at(bits)) +
                            static_cast<double>(at(bits + 1 < 0x10000 ? bits + 1 : bits))) /
                           2);
    values.insert(values.end(), {at(bits), half_way, std::nextafter(half_way, kInfinity),
                                 std::nextafter(half_way, -kInfinity)});
  }
  values.insert(values.end(), {65504, 65519.996F, 65520, -65520, 3.4e38F, -3.4e38F});
  return values;
}

void expect_nearest(const std::vector<float>& values, const Form& form, CastPath path) {
  const auto found = cast<std::uint16_t>(DType::kFloat32, form.dtype, values, path);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      ASSERT_TRUE(is_nan(found[i], form)) << std::bit_cast<std::uint32_t>(values[i]);
      ASSERT_EQ((found[i] & 0x8000) != 0, std::signbit(values[i]));
    } else {
      ASSERT_EQ(found[i], nearest_bits(values[i], form)) << std::hexfloat << values[i];
    }
  }
}

TEST(Cast, RoundsEveryFloatToTheNearestHalf) {
  for (const CastPath path : {CastPath::kBest, CastPath::kPortable}) {
    expect_nearest(boundaries(kHalf), kHalf, path);
    sweep([&](const std::vector<float>& values) { expect_nearest(values, kHalf, path); });
  }
}

TEST(Cast, RoundsEveryFloatToTheNearestBFloat) {
  for (const CastPath path : {CastPath::kBest, CastPath::kPortable}) {
    expect_nearest(boundaries(kBFloat), kBFloat, path);
    sweep([&](const std::vector<float>& values) { expect_nearest(values, kBFloat, path); });
  }
}

TEST(Cast, GivesTheSameBitsOnAnyProcessor) {
  sweep([](const std::vector<float>& values) {
    for (const DType to : {DType::kFloat16, DType::kBFloat16}) {
      ASSERT_EQ(cast<std::uint16_t>(DType::kFloat32, to, values, CastPath::kBest),
                cast<std::uint16_t>(DType::kFloat32, to, values, CastPath::kPortable));
    }
  });
}

TEST(Cast, WidensEveryHalfAndBFloatExactly) {
  for (const Form& form : {kHalf, kBFloat}) {
    std::vector<std::uint16_t> all(0x10000);
    for (std::size_t bits = 0; bits < all.size(); ++bits) {
      all[bits] = static_cast<std::uint16_t>(bits);
    }
    for (const CastPath path : {CastPath::kBest, CastPath::kPortable}) {
      const auto wide = cast<float>(form.dtype, DType::kFloat32, all, path);
      for (std::size_t bits = 0; bits < all.size(); ++bits) {
        ASSERT_EQ(std::isnan(wide[bits]), is_nan(all[bits], form)) << bits;
        if (!std::isnan(wide[bits])) {
          ASSERT_EQ(nearest_bits(wide[bits], form), bits);
        }
      }
      EXPECT_EQ(cast<double>(form.dtype, DType::kFloat64, all, path)[0x3f80],
                static_cast<double>(wide[0x3f80]));
    }
  }
}

TEST(Cast, ConvertsThroughFloat32AsTorchDoes) {
  // Nearer to 1 + 2^-10 than to 1, but the float in between is half-way, and goes to even.
  const std::vector<double> value{1.0 + 0x1p-11 + 0x1p-40, 1e300, -1e-300, 0.1};
  EXPECT_EQ(cast<std::uint16_t>(DType::kFloat64, DType::kFloat16, value),
            (std::vector<std::uint16_t>{0x3c00, 0x7c00, 0x8000, 0x2e66}));
  EXPECT_EQ(cast<float>(DType::kFloat64, DType::kFloat32, value),
            (std::vector<float>{1.0F + 0x1p-11F, kInfinity, -0.0F, 0.1F}));
  EXPECT_EQ(cast<std::uint16_t>(DType::kFloat16, DType::kBFloat16,
                                std::vector<std::uint16_t>{0x3c00, 0x0001, 0x7bff}),
            (std::vector<std::uint16_t>{0x3f80, 0x3380, 0x4780}));
}

// The values of an 8-bit type at some of its bits; NaN equals NaN here.
void expect_values(DType from, const std::vector<std::pair<std::uint8_t, float>>& wanted) {
  for (const auto& [bits, value] : wanted) {
    const float found = cast<float>(from, DType::kFloat32, std::vector{bits})[0];
    EXPECT_TRUE(found == value || (std::isnan(found) && std::isnan(value)))
        << torch_name(from) << " " << int{bits} << ": " << found;
    EXPECT_TRUE(std::isnan(found) || std::signbit(found) == std::signbit(value));
  }
}

TEST(Cast, ReadsTheEightBitTypes) {
  expect_values(DType::kFloat8E4M3Fn, {{0x00, 0.0F},
                                       {0x80, -0.0F},
                                       {0x01, 0x1p-9F},
                                       {0x38, 1.0F},
                                       {0x7e, 448.0F},
                                       {0xfe, -448.0F},
                                       {0x7f, kNan},
                                       {0xff, kNan}});
  expect_values(DType::kFloat8E4M3FnUz, {{0x00, 0.0F},
                                         {0x80, kNan},
                                         {0x01, 0x1p-10F},
                                         {0x40, 1.0F},
                                         {0x7f, 240.0F},
                                         {0xff, -240.0F}});
  expect_values(DType::kFloat8E5M2, {{0x01, 0x1p-16F},
                                     {0x3c, 1.0F},
                                     {0x7b, 57344.0F},
                                     {0x7c, kInfinity},
                                     {0xfc, -kInfinity},
                                     {0x7d, kNan}});
  expect_values(
      DType::kFloat8E5M2FnUz,
      {{0x80, kNan}, {0x01, 0x1p-17F}, {0x40, 1.0F}, {0x7f, 57344.0F}, {0x81, -0x1p-17F}});
  expect_values(DType::kFloat8E8M0FnU,
                {{0x00, 0x1p-127F}, {0x7f, 1.0F}, {0xfe, 0x1p127F}, {0xff, kNan}});
}

TEST(Cast, ReadsEveryEightBitValueAlikeOnEveryProcessor) {
  std::vector<std::uint8_t> all(256);
  for (std::size_t bits = 0; bits < all.size(); ++bits) {
    all[bits] = static_cast<std::uint8_t>(bits);
  }
  for (const DType from : {DType::kFloat8E4M3Fn, DType::kFloat8E4M3FnUz, DType::kFloat8E5M2,
                           DType::kFloat8E5M2FnUz, DType::kFloat8E8M0FnU}) {
    for (const DType to : {DType::kFloat16, DType::kBFloat16}) {
      EXPECT_EQ(cast<std::uint16_t>(from, to, all),
                cast<std::uint16_t>(from, to, all, CastPath::kPortable));
    }
    const auto wide = cast<std::uint32_t>(from, DType::kFloat32, all);
    EXPECT_EQ(wide, cast<std::uint32_t>(from, DType::kFloat32, all, CastPath::kPortable));
    // By definition, all of them rise with their bits but for the NaNs.
    for (std::size_t bits = 1; bits < 0x80; ++bits) {
      const float value = std::bit_cast<float>(wide[bits]);
      EXPECT_TRUE(std::isnan(value) || value > std::bit_cast<float>(wide[bits - 1])) << bits;
    }
  }
}

TEST(Cast, TakesAnyNumberOfElementsAtAnyAddress) {
  const std::vector<float> values(2100, 1.5F);
  for (const std::size_t count : {0UL, 1UL, 7UL, 8UL, 9UL, 1023UL, 1025UL, 2099UL}) {
    std::vector<std::byte> in(1 + 4 * count);
    std::memcpy(in.data() + 1, values.data(), 4 * count);
    std::vector<std::byte> out(1 + 2 * count + 1);
    cast_elements(DType::kFloat32, DType::kFloat16, std::span(in).subspan(1),
                  std::span(out).subspan(1, 2 * count));
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, out.data() + 1 + 2 * i, 2);
      ASSERT_EQ(half, 0x3e00) << count;
    }
    EXPECT_EQ(out.back(), std::byte{0});
  }
}

}  // namespace
}  // namespace onnx_external
