#include "tensor/cast.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tensor/half_float.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define ONNX_EXTERNAL_AVX2 gnu::target("avx2,f16c")
#endif

// Each type defines how one element becomes the bits of a float32 and back, without branches, so
// that compilers can vectorize the loop. With AVX2 it also defines this for eight elements at once.

namespace onnx_external {
namespace {

constexpr std::uint32_t kFloatInfinity = 0x7f800000;
constexpr std::uint32_t kFloatQuiet = 0x00400000;  // also the bits of 2^-127
constexpr std::uint32_t kHalfInfinity = 0x7c00;
constexpr std::uint32_t kHalfQuiet = 0x0200;
constexpr std::uint32_t kLeastNormalHalf = 0x38800000;  // 2^-14 as a float
constexpr std::uint32_t kHalfBias = std::uint32_t{127 - 15} << 23;
constexpr std::size_t kLanes = 8;

struct Float64 {
  using Element = double;
  static std::uint32_t widen(double value) {
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
  static double narrow(std::uint32_t bits) {
    return static_cast<double>(std::bit_cast<float>(bits));
  }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    const auto* values = reinterpret_cast<const double*>(in);
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(values + 4)),
                           _mm256_cvtpd_ps(_mm256_loadu_pd(values)));
  }
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static void store(std::byte* out, __m256 floats) {
    auto* values = reinterpret_cast<double*>(out);
    _mm256_storeu_pd(values, _mm256_cvtps_pd(_mm256_castps256_ps128(floats)));
    _mm256_storeu_pd(values + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)));
  }
#endif
};

struct Float32 {
  using Element = std::uint32_t;
  static std::uint32_t widen(std::uint32_t bits) { return bits; }
  static std::uint32_t narrow(std::uint32_t bits) { return bits; }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(in));
  }
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static void store(std::byte* out, __m256 floats) {
    _mm256_storeu_ps(reinterpret_cast<float*>(out), floats);
  }
#endif
};

struct Float16 {
  using Element = std::uint16_t;
  static std::uint32_t widen(std::uint16_t half) { return float_bits_of_half(half); }
  static std::uint16_t narrow(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t sign = (bits >> 16) & 0x8000;
    const std::uint32_t rebased = magnitude - kHalfBias;
    const std::uint32_t normal =
        std::min((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13, kHalfInfinity);
    // Floats in [0.5, 1) are 2^-24 apart, like subnormal halves, so the addition does the rounding.
    const float shifted = std::bit_cast<float>(std::min(magnitude, kLeastNormalHalf)) + 0.5F;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
    const std::uint32_t nan = kHalfInfinity | kHalfQuiet | ((magnitude >> 13) & 0x3ff);
    const std::uint32_t number = magnitude < kLeastNormalHalf ? subnormal : normal;
    return static_cast<std::uint16_t>(sign | (magnitude > kFloatInfinity ? nan : number));
  }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  }
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static void store(std::byte* out, __m256 floats) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
};

struct BFloat16 {
  using Element = std::uint16_t;
  static std::uint32_t widen(std::uint16_t bits) { return std::uint32_t{bits} << 16; }
  static std::uint16_t narrow(std::uint32_t bits) {
    const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const std::uint32_t nan = bits | kFloatQuiet;
    return static_cast<std::uint16_t>(((bits & 0x7fffffff) > kFloatInfinity ? nan : rounded) >> 16);
  }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static void store(std::byte* out, __m256 floats) {
    const __m256i bits = _mm256_castps_si256(floats);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(kFloatQuiet));
    const __m256 is_nan = _mm256_cmp_ps(floats, floats, _CMP_UNORD_Q);
    const __m256i chosen =
        _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(is_nan)), 16);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out),
        _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1)));
  }
#endif
};

#ifdef ONNX_EXTERNAL_AVX2
[[ONNX_EXTERNAL_AVX2, gnu::always_inline]] inline __m256i load_bytes(const std::byte* in) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in)));
}

[[ONNX_EXTERNAL_AVX2, gnu::always_inline]] inline __m256 choose(__m256i mask, __m256i yes,
                                                                __m256i no) {
  return _mm256_castsi256_ps(_mm256_blendv_epi8(no, yes, mask));
}
#endif

enum class Special {
  kInfinity,  // the largest exponent means infinity or NaN, as in IEEE types
  kNan,       // all ones after the sign mean NaN
  kNoSign,    // 0x80 means NaN; there is no negative zero
};

// An 8-bit type: a sign, an exponent, and `kMantissa` bits. Shifted, its bits are a float that is
// too small by a power of two; the product is exact.
template <int kMantissa, int kBias, Special kSpecial>
struct Float8 {
  using Element = std::uint8_t;
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kExponentBias = kBias;
  static constexpr Special kSpecials = kSpecial;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr float kScale = std::bit_cast<float>(std::uint32_t{254 - kBias} << 23);
  static constexpr std::uint32_t kNumbers =  // magnitudes below this are numbers
      kSpecial == Special::kInfinity ? 0x7fU >> kMantissa << kMantissa
      : kSpecial == Special::kNan    ? 0x7f
                                     : 0x80;
  static std::uint32_t widen(std::uint8_t bits) {
    const std::uint32_t magnitude = bits & 0x7fU;
    const std::uint32_t sign = std::uint32_t{bits & 0x80U} << 24;
    const float number = std::bit_cast<float>(magnitude << kShift) * kScale;
    const std::uint32_t quiet = magnitude > kNumbers || kSpecial == Special::kNan ? kFloatQuiet : 0;
    const std::uint32_t special = kFloatInfinity | (magnitude << kShift) | quiet;
    if constexpr (kSpecial == Special::kNoSign) {
      return bits == 0x80 ? kFloatInfinity | kFloatQuiet
                          : sign | std::bit_cast<std::uint32_t>(number);
    }
    return sign | (magnitude >= kNumbers ? special : std::bit_cast<std::uint32_t>(number));
  }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    const __m256i bits = load_bytes(in);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f));
    const __m256i shifted = _mm256_slli_epi32(magnitude, kShift);
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(bits, magnitude), 24);
    const __m256 number = _mm256_mul_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(kScale));
    if constexpr (kSpecial == Special::kNoSign) {
      return choose(_mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x80)),
                    _mm256_set1_epi32(kFloatInfinity | kFloatQuiet),
                    _mm256_or_si256(sign, _mm256_castps_si256(number)));
    }
    const __m256i last = _mm256_set1_epi32(static_cast<int>(kNumbers));
    const __m256i is_nan = kSpecial == Special::kNan ? _mm256_cmpeq_epi32(magnitude, last)
                                                     : _mm256_cmpgt_epi32(magnitude, last);
    const __m256i quiet = _mm256_and_si256(is_nan, _mm256_set1_epi32(kFloatQuiet));
    const __m256i special =
        _mm256_or_si256(_mm256_or_si256(shifted, quiet), _mm256_set1_epi32(kFloatInfinity));
    const __m256i is_number = _mm256_cmpgt_epi32(last, magnitude);
    return choose(is_number, _mm256_or_si256(sign, _mm256_castps_si256(number)),
                  _mm256_or_si256(sign, special));
  }
#endif
};

template <typename T>
concept SmallFloat = requires {
  T::kMantissaBits;
};

using Float8E4M3Fn = Float8<3, 7, Special::kNan>;
using Float8E4M3FnUz = Float8<3, 8, Special::kNoSign>;
using Float8E5M2 = Float8<2, 15, Special::kInfinity>;
using Float8E5M2FnUz = Float8<2, 16, Special::kNoSign>;

// Powers of two from 2^-127, which is subnormal, to 2^127; and a NaN.
struct Float8E8M0 {
  using Element = std::uint8_t;
  static std::uint32_t widen(std::uint8_t bits) {
    const std::uint32_t number = bits == 0 ? 0x00400000 : std::uint32_t{bits} << 23;
    return bits == 0xff ? kFloatInfinity | kFloatQuiet : number;
  }
#ifdef ONNX_EXTERNAL_AVX2
  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] static __m256 load(const std::byte* in) {
    const __m256i bits = load_bytes(in);
    const __m256i is_zero = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    const __m256i is_nan = _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0xff));
    const __m256i least = _mm256_and_si256(is_zero, _mm256_set1_epi32(kFloatQuiet));
    const __m256i quiet = _mm256_and_si256(is_nan, _mm256_set1_epi32(kFloatQuiet));
    const __m256i power = _mm256_slli_epi32(bits, 23);  // 255: the exponent of infinity
    return _mm256_castsi256_ps(_mm256_or_si256(power, _mm256_or_si256(least, quiet)));
  }
#endif
};

template <typename From, typename To>
[[gnu::always_inline]] inline void convert_each(const std::byte* __restrict in,
                                                std::byte* __restrict out, std::size_t first,
                                                std::size_t count) {
  constexpr std::size_t kFrom = sizeof(typename From::Element);
  constexpr std::size_t kTo = sizeof(typename To::Element);
  for (std::size_t i = first; i < count; ++i) {
    typename From::Element value;
    std::memcpy(&value, in + i * kFrom, kFrom);
    const typename To::Element result = To::narrow(From::widen(value));
    std::memcpy(out + i * kTo, &result, kTo);
  }
}

#ifdef ONNX_EXTERNAL_AVX2
// Converts 8-bit floats to 16-bit ones, sixteen at once. For normal numbers, exponent and mantissa
// shift and the exponent's bias changes. The 16 smallest and the 16 largest magnitudes, which
// include all subnormals and all values that are not numbers, are looked up.
template <typename From, typename To>
class SmallToHalf {
  static constexpr int kToMantissa = std::is_same_v<To, Float16> ? 10 : 7;
  static constexpr int kToBias = std::is_same_v<To, Float16> ? 15 : 127;
  static constexpr std::uint8_t kFirstLarge = 0x70;

  // The low or the high bytes of the results for 16 magnitudes.
  [[ONNX_EXTERNAL_AVX2]] static __m256i bytes_from(std::uint8_t first, int shift) {
    std::array<std::uint8_t, 16> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint16_t half = To::narrow(From::widen(static_cast<std::uint8_t>(first + i)));
      bytes[i] = static_cast<std::uint8_t>(half >> shift);
    }
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data())));
  }

  struct Table {
    __m256i low;
    __m256i high;
    [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] __m256i at(__m256i nibbles) const {
      const __m256i none = _mm256_set1_epi16(static_cast<std::int16_t>(0x8000));
      const __m256i index = _mm256_or_si256(nibbles, none);  // the upper byte stays empty
      return _mm256_or_si256(_mm256_shuffle_epi8(low, index),
                             _mm256_slli_epi16(_mm256_shuffle_epi8(high, index), 8));
    }
  };

 public:
  static constexpr std::size_t kAtOnce = 16;

  [[ONNX_EXTERNAL_AVX2]] SmallToHalf()
      : small_{bytes_from(0, 0), bytes_from(0, 8)},
        large_{bytes_from(kFirstLarge, 0), bytes_from(kFirstLarge, 8)} {}

  [[ONNX_EXTERNAL_AVX2, gnu::always_inline]] void convert(const std::byte* in,
                                                          std::byte* out) const {
    const __m256i bits =
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(bits, magnitude), 8);
    const __m256i nibble = _mm256_and_si256(bits, _mm256_set1_epi16(0x0f));
    constexpr int kRebias = (kToBias - From::kExponentBias) * (1 << kToMantissa);
    __m256i half = _mm256_add_epi16(_mm256_slli_epi16(magnitude, kToMantissa - From::kMantissaBits),
                                    _mm256_set1_epi16(static_cast<std::int16_t>(kRebias)));
    half = _mm256_blendv_epi8(half, small_.at(nibble),
                              _mm256_cmpgt_epi16(_mm256_set1_epi16(16), magnitude));
    half = _mm256_blendv_epi8(half, large_.at(nibble),
                              _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(kFirstLarge - 1)));
    half = _mm256_or_si256(half, sign);
    if constexpr (From::kSpecials == Special::kNoSign) {
      const auto nan = static_cast<std::int16_t>(To::narrow(From::widen(0x80)));
      half = _mm256_blendv_epi8(half, _mm256_set1_epi16(nan),
                                _mm256_cmpeq_epi16(bits, _mm256_set1_epi16(0x80)));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), half);
  }

 private:
  Table small_;
  Table large_;
};

template <typename From, typename To>
[[ONNX_EXTERNAL_AVX2]] void convert_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t done = 0;
  if constexpr (SmallFloat<From> && sizeof(typename To::Element) == 2) {
    const SmallToHalf<From, To> converter;
    for (; done + converter.kAtOnce <= count; done += converter.kAtOnce) {
      converter.convert(in + done, out + 2 * done);
    }
  }
  for (; done + kLanes <= count; done += kLanes) {
    To::store(out + done * sizeof(typename To::Element),
              From::load(in + done * sizeof(typename From::Element)));
  }
  convert_each<From, To>(in, out, done, count);
}

bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Asked once: CPUID may end in a virtual machine's monitor. Two threads may both ask.
bool has_avx2() {
  enum Answer : std::int8_t { kUnknown, kNo, kYes };
  static std::atomic<Answer> answer{kUnknown};
  if (answer.load(std::memory_order_relaxed) == kUnknown) {
    answer = __builtin_cpu_supports("avx2") && has_f16c() ? kYes : kNo;
  }
  return answer.load(std::memory_order_relaxed) == kYes;
}
#endif

template <typename From, typename To>
void convert(const std::byte* in, std::byte* out, std::size_t count, CastPath path) {
#ifdef ONNX_EXTERNAL_AVX2
  if (path == CastPath::kBest && has_avx2()) {
    return convert_avx2<From, To>(in, out, count);
  }
#endif
  (void)path;
  convert_each<From, To>(in, out, 0, count);
}

template <typename From>
void convert_from(DType to, const std::byte* in, std::byte* out, std::size_t count, CastPath path) {
  switch (to) {
    case DType::kFloat64:
      return convert<From, Float64>(in, out, count, path);
    case DType::kFloat32:
      return convert<From, Float32>(in, out, count, path);
    case DType::kFloat16:
      return convert<From, Float16>(in, out, count, path);
    default:
      return convert<From, BFloat16>(in, out, count, path);
  }
}

}  // namespace

void cast_elements(DType from, DType to, std::span<const std::byte> in, std::span<std::byte> out,
                   CastPath path) {
  const std::size_t count = in.size() / byte_size(from);
  const auto convert_as = [&](auto type) {
    convert_from<decltype(type)>(to, in.data(), out.data(), count, path);
  };
  if (from == to) {  // float32 would not be exact for all types
    std::copy(in.begin(), in.end(), out.begin());
    return;
  }
  switch (from) {
    case DType::kFloat64:
      return convert_as(Float64());
    case DType::kFloat32:
      return convert_as(Float32());
    case DType::kFloat16:
      return convert_as(Float16());
    case DType::kBFloat16:
      return convert_as(BFloat16());
    case DType::kFloat8E4M3Fn:
      return convert_as(Float8E4M3Fn());
    case DType::kFloat8E4M3FnUz:
      return convert_as(Float8E4M3FnUz());
    case DType::kFloat8E5M2:
      return convert_as(Float8E5M2());
    case DType::kFloat8E5M2FnUz:
      return convert_as(Float8E5M2FnUz());
    default:
      return convert_as(Float8E8M0());
  }
}

}  // namespace onnx_external
