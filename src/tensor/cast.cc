#include "tensor/cast.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/half_float.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define ONNX_EXTERNAL_AVX2 [[gnu::target("avx2,f16c")]]
#endif

namespace onnx_external {
namespace {

// Elements that pass through float32 on their way: 4 KiB stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

constexpr std::uint32_t kFloatInfinity = 0x7f800000;
constexpr std::uint32_t kHalfInfinity = 0x7c00;
constexpr std::uint32_t kHalfQuiet = 0x0200;
constexpr std::uint32_t kBFloatQuiet = 0x0040;
constexpr std::uint32_t kLeastNormalHalf = 0x38800000;  // 2^-14 as a float
constexpr std::uint32_t kExponentShift = std::uint32_t{127 - 15} << 23;

// The loops below have no branches, so that compilers turn them into vector code.

[[gnu::always_inline]] inline std::uint16_t half_of_float(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t rebased = magnitude - kExponentShift;
  const std::uint32_t normal =
      std::min((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13, kHalfInfinity);
  // Floats in [0.5, 1) are 2^-24 apart, as subnormal halves are: the addition does the rounding.
  const float shifted = std::bit_cast<float>(std::min(magnitude, kLeastNormalHalf)) + 0.5F;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t nan = kHalfInfinity | kHalfQuiet | ((magnitude >> 13) & 0x3ff);
  std::uint32_t half = magnitude < kLeastNormalHalf ? subnormal : normal;
  half = magnitude > kFloatInfinity ? nan : half;
  return static_cast<std::uint16_t>(sign | half);
}

[[gnu::always_inline]] inline std::uint16_t bfloat_of_float(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t nan = (bits >> 16) | kBFloatQuiet;
  return static_cast<std::uint16_t>((bits & 0x7fffffff) > kFloatInfinity ? nan : rounded);
}

template <typename From, typename To, typename Convert>
[[gnu::always_inline]] inline void convert_each(const std::byte* __restrict in,
                                                std::byte* __restrict out, std::size_t count,
                                                Convert convert) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + i * sizeof(From), sizeof(From));
    const To result = convert(value);
    std::memcpy(out + i * sizeof(To), &result, sizeof(To));
  }
}

using Convert = void (*)(const std::byte* in, std::byte* out, std::size_t count);

void half_to_float(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<std::uint16_t, std::uint32_t>(
      in, out, count, [](std::uint16_t half) { return float_bits_of_half(half); });
}
void float_to_half(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<std::uint32_t, std::uint16_t>(
      in, out, count, [](std::uint32_t bits) { return half_of_float(bits); });
}
void bfloat_to_float(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<std::uint16_t, std::uint32_t>(
      in, out, count, [](std::uint16_t bits) { return std::uint32_t{bits} << 16; });
}
void float_to_bfloat(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<std::uint32_t, std::uint16_t>(
      in, out, count, [](std::uint32_t bits) { return bfloat_of_float(bits); });
}
void double_to_float(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<double, float>(in, out, count,
                              [](double value) { return static_cast<float>(value); });
}
void float_to_double(const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<float, double>(in, out, count,
                              [](float value) { return static_cast<double>(value); });
}

#ifdef ONNX_EXTERNAL_AVX2
constexpr std::size_t kLanes = 8;

ONNX_EXTERNAL_AVX2 void half_to_float_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(reinterpret_cast<float*>(out + 4 * i), _mm256_cvtph_ps(halves));
  }
  half_to_float(in + 2 * i, out + 4 * i, count - i);
}

ONNX_EXTERNAL_AVX2 void float_to_half_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(in + 4 * i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
  }
  float_to_half(in + 4 * i, out + 2 * i, count - i);
}

ONNX_EXTERNAL_AVX2 void bfloat_to_float_avx2(const std::byte* in, std::byte* out,
                                             std::size_t count) {
  convert_each<std::uint16_t, std::uint32_t>(
      in, out, count, [](std::uint16_t bits) { return std::uint32_t{bits} << 16; });
}

ONNX_EXTERNAL_AVX2 void float_to_bfloat_avx2(const std::byte* in, std::byte* out,
                                             std::size_t count) {
  convert_each<std::uint32_t, std::uint16_t>(
      in, out, count, [](std::uint32_t bits) { return bfloat_of_float(bits); });
}
#endif

// One set of loops for one kind of processor; all go from or to float32.
struct Loops {
  Convert half_to_float;
  Convert float_to_half;
  Convert bfloat_to_float;
  Convert float_to_bfloat;
};

const Loops& loops_for(CastPath path) {
  static constexpr Loops kPortable{half_to_float, float_to_half, bfloat_to_float, float_to_bfloat};
#ifdef ONNX_EXTERNAL_AVX2
  static constexpr Loops kAvx2{half_to_float_avx2, float_to_half_avx2, bfloat_to_float_avx2,
                               float_to_bfloat_avx2};
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (path == CastPath::kBest && has_avx2) {
    return kAvx2;
  }
#endif
  (void)path;
  return kPortable;
}

// An 8-bit float type: sign, exponent, mantissa from the highest bit on.
struct SmallFloat {
  int mantissa_bits;
  int bias;
  bool has_infinity;   // the largest exponent is kept for infinity and NaN, as in IEEE types
  bool has_fnuz_form;  // 0x80 is the only NaN, and there is no negative zero
};

float decode(std::uint8_t bits, const SmallFloat& form) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const int mantissa = bits & ((1 << form.mantissa_bits) - 1);
  const int exponent = (bits & 0x7f) >> form.mantissa_bits;
  const int last_exponent = 0x7f >> form.mantissa_bits;
  const float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
  if (form.has_fnuz_form && bits == 0x80) {
    return kNan;
  }
  if (form.has_infinity && exponent == last_exponent) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::copysign(kNan, sign);
  }
  if (!form.has_infinity && !form.has_fnuz_form && (bits & 0x7f) == 0x7f) {
    return std::copysign(kNan, sign);
  }
  const int scale = std::max(exponent, 1) - form.bias - form.mantissa_bits;
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << form.mantissa_bits);
  return sign * std::ldexp(static_cast<float>(significand), scale);
}

using Table = std::array<float, 256>;

Table table_of(const SmallFloat& form) {
  Table table{};
  for (std::size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = decode(static_cast<std::uint8_t>(bits), form);
  }
  return table;
}

// Powers of two; 255 is NaN.
Table table_of_scales() {
  Table table{};
  for (std::size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = std::ldexp(1.0F, static_cast<int>(bits) - 127);
  }
  table.back() = std::numeric_limits<float>::quiet_NaN();
  return table;
}

// The values of an 8-bit type; null for any other.
const Table* table_for(DType dtype) {
  static const Table e4m3fn = table_of({3, 7, false, false});
  static const Table e4m3fnuz = table_of({3, 8, false, true});
  static const Table e5m2 = table_of({2, 15, true, false});
  static const Table e5m2fnuz = table_of({2, 16, false, true});
  static const Table e8m0 = table_of_scales();
  switch (dtype) {
    case DType::kFloat8E4M3Fn:
      return &e4m3fn;
    case DType::kFloat8E4M3FnUz:
      return &e4m3fnuz;
    case DType::kFloat8E5M2:
      return &e5m2;
    case DType::kFloat8E5M2FnUz:
      return &e5m2fnuz;
    case DType::kFloat8E8M0FnU:
      return &e8m0;
    default:
      return nullptr;
  }
}

void look_up(const Table& table, const std::byte* in, std::byte* out, std::size_t count) {
  convert_each<std::uint8_t, float>(in, out, count, [&](std::uint8_t bits) { return table[bits]; });
}

void to_float(DType from, const std::byte* in, std::byte* out, std::size_t count,
              const Loops& loops) {
  if (const Table* table = table_for(from)) {
    look_up(*table, in, out, count);
  } else if (from == DType::kFloat16) {
    loops.half_to_float(in, out, count);
  } else if (from == DType::kBFloat16) {
    loops.bfloat_to_float(in, out, count);
  } else {
    double_to_float(in, out, count);
  }
}

void from_float(DType to, const std::byte* in, std::byte* out, std::size_t count,
                const Loops& loops) {
  if (to == DType::kFloat16) {
    loops.float_to_half(in, out, count);
  } else if (to == DType::kBFloat16) {
    loops.float_to_bfloat(in, out, count);
  } else {
    float_to_double(in, out, count);
  }
}

}  // namespace

void cast_elements(DType from, DType to, std::span<const std::byte> in, std::span<std::byte> out,
                   CastPath path) {
  const Loops& loops = loops_for(path);
  const std::size_t count = in.size() / byte_size(from);
  if (from == to) {
    std::copy(in.begin(), in.end(), out.begin());
  } else if (to == DType::kFloat32) {
    to_float(from, in.data(), out.data(), count, loops);
  } else if (from == DType::kFloat32) {
    from_float(to, in.data(), out.data(), count, loops);
  } else {
    std::array<std::byte, kBlock * sizeof(float)> block;
    for (std::size_t done = 0; done < count; done += kBlock) {
      const std::size_t step = std::min(kBlock, count - done);
      to_float(from, in.data() + done * byte_size(from), block.data(), step, loops);
      from_float(to, block.data(), out.data() + done * byte_size(to), step, loops);
    }
  }
}

}  // namespace onnx_external
