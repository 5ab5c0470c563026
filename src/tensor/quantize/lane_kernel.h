// A kernel that quantizes as many blocks at once as a vector has lanes.
//
// Each source that includes this file is compiled for another processor and defines
// ONNX_EXTERNAL_LANES: floats in its vectors, which must not be wider than the processor's. After a
// transposition each lane holds one block and runs the sequential loop of the rule in
// docs/quantize.md, so the number of lanes cannot change a bit. Compiled without contraction of
// multiplications and additions.
//
// Everything lies in an unnamed namespace and nothing here calls a function template of the
// standard library: the linker keeps one copy of such a function, which could be the one for a
// processor that this machine does not have.
#pragma once

#include <cfloat>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensor/quantize/block_job.h"

static_assert(FLT_EVAL_METHOD == 0, "the rule rounds every operation to float32");

#define ONNX_EXTERNAL_INLINE [[gnu::always_inline]] inline

namespace onnx_external {
namespace {

constexpr int kLanes = ONNX_EXTERNAL_LANES;
constexpr std::uint32_t kMostColumns = 256;
constexpr std::uint32_t kMagnitude = 0x7fffffff;
constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t kLeastNormal = 0x00800000;
constexpr std::uint32_t kHalfOverflow = 0x47800000;     // 2^16
constexpr std::uint32_t kLeastNormalHalf = 0x38800000;  // 2^-14
constexpr std::uint32_t kHalfRebias = 112U << 23;

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * kLanes)));

ONNX_EXTERNAL_INLINE Floats all(float value) {
  return Floats{} + value;
}

ONNX_EXTERNAL_INLINE Words all(std::uint32_t value) {
  return Words{} + value;
}

ONNX_EXTERNAL_INLINE Floats to_floats(Ints values) {
  return __builtin_convertvector(values, Floats);
}

ONNX_EXTERNAL_INLINE Ints to_ints(Floats values) {
  return __builtin_convertvector(values, Ints);
}

// The larger or smaller of each pair; b if they are equal or one is NaN, as the instructions do.
#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 warns of what the forms without a mask hold
ONNX_EXTERNAL_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
}
ONNX_EXTERNAL_INLINE Floats smaller(Floats a, Floats b) {
  return (Floats)_mm512_maskz_min_ps(kAllLanes, (__m512)a, (__m512)b);
}
ONNX_EXTERNAL_INLINE Floats truncated(Floats a) {
  return (Floats)_mm512_maskz_roundscale_ps(kAllLanes, (__m512)a,
                                            _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
#elif defined(__AVX2__)
ONNX_EXTERNAL_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm256_max_ps((__m256)a, (__m256)b);
}
ONNX_EXTERNAL_INLINE Floats smaller(Floats a, Floats b) {
  return (Floats)_mm256_min_ps((__m256)a, (__m256)b);
}
ONNX_EXTERNAL_INLINE Floats truncated(Floats a) {
  return (Floats)_mm256_round_ps((__m256)a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
#else
#if defined(__SSE2__)
ONNX_EXTERNAL_INLINE Floats larger(Floats a, Floats b) {
  return (Floats)_mm_max_ps((__m128)a, (__m128)b);
}
ONNX_EXTERNAL_INLINE Floats smaller(Floats a, Floats b) {
  return (Floats)_mm_min_ps((__m128)a, (__m128)b);
}
#else
ONNX_EXTERNAL_INLINE Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}
ONNX_EXTERNAL_INLINE Floats smaller(Floats a, Floats b) {
  return a < b ? a : b;
}
#endif
ONNX_EXTERNAL_INLINE Floats truncated(Floats a) {  // of small numbers
  return to_floats(to_ints(a));
}
#endif

// The value in the range of codes, before it is truncated to one.
ONNX_EXTERNAL_INLINE Floats clamped(Floats value, Floats top) {
  return smaller(larger(value, Floats{}), top);
}

// ---- Transposition

// Swaps the off-diagonal blocks of all 2 * kStep x 2 * kStep blocks.
template <int kStep, std::size_t... kIndex>
ONNX_EXTERNAL_INLINE void swap_blocks(Floats* rows, std::index_sequence<kIndex...>) {
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) == 0) {
      const Floats a = rows[i];
      const Floats b = rows[i + kStep];
      rows[i] = __builtin_shufflevector(
          a, b, ((kIndex & kStep) != 0 ? kLanes + kIndex - kStep : kIndex)...);
      rows[i + kStep] = __builtin_shufflevector(
          a, b, ((kIndex & kStep) != 0 ? kLanes + kIndex : kIndex + kStep)...);
    }
  }
}

ONNX_EXTERNAL_INLINE void transpose(Floats* rows) {
  constexpr auto kIndices = std::make_index_sequence<kLanes>();
  if constexpr (kLanes > 8) {
    swap_blocks<8>(rows, kIndices);
  }
  if constexpr (kLanes > 4) {
    swap_blocks<4>(rows, kIndices);
  }
  swap_blocks<2>(rows, kIndices);
  swap_blocks<1>(rows, kIndices);
}

// ---- Loading

template <DType kType>
ONNX_EXTERNAL_INLINE Floats widened(Words bits) {
  if constexpr (kType == DType::kBFloat16) {
    return (Floats)(bits << 16);
  }
  const Words magnitude = bits & 0x7fffU;
  // Subnormal halves are whole numbers of 2^-24, and converted as such.
  const Floats subnormal = to_floats((Ints)magnitude) * 0x1p-24F;
  const Words normal = (magnitude << 13) + kHalfRebias;
  const Words special = (magnitude << 13) | kInfinity;
  const Words number = magnitude < 0x400U ? (Words)subnormal : normal;
  return (Floats)((magnitude >= 0x7c00U ? special : number) | ((bits & 0x8000U) << 16));
}

template <DType kType>
ONNX_EXTERNAL_INLINE Floats load(const std::byte* in) {
  if constexpr (kType == DType::kFloat32) {
    Floats floats;
    std::memcpy(&floats, in, sizeof(floats));
    return floats;
  }
  Halves halves;
  std::memcpy(&halves, in, sizeof(halves));
  return widened<kType>(__builtin_convertvector(halves, Words));
}

// Column k of `blocks` blocks to x[k]; lanes without a block of their own repeat the last one.
template <DType kType>
void load_blocks(const std::byte* const* values, std::size_t blocks, std::uint32_t columns,
                 Floats* x) {
  const std::byte* lane[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    lane[i] = values[i < blocks ? i : blocks - 1];
  }
  Floats tile[kLanes];
  std::uint32_t k = 0;
  if constexpr (kType != DType::kFloat32) {
    for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {  // pairs of columns as words
      for (int i = 0; i < kLanes; ++i) {
        std::memcpy(&tile[i], lane[i] + std::size_t{2} * k, sizeof(Floats));
      }
      transpose(tile);
      for (int i = 0; i < kLanes; ++i) {
        const Words pair = (Words)tile[i];
        x[k + 2 * static_cast<unsigned>(i)] = widened<kType>(pair & 0xffffU);
        x[k + 2 * static_cast<unsigned>(i) + 1] = widened<kType>(pair >> 16);
      }
    }
  }
  for (; k < columns; k += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      tile[i] = load<kType>(lane[i] + std::size_t{kType == DType::kFloat32 ? 4 : 2} * k);
    }
    transpose(tile);
    for (int i = 0; i < kLanes; ++i) {
      x[k + static_cast<unsigned>(i)] = tile[i];
    }
  }
}

void load_any(const BlockJob& job, std::size_t first, std::size_t blocks, Floats* x) {
  switch (job.values_type) {
    case DType::kFloat32:
      return load_blocks<DType::kFloat32>(job.values + first, blocks, job.block, x);
    case DType::kFloat16:
      return load_blocks<DType::kFloat16>(job.values + first, blocks, job.block, x);
    default:
      return load_blocks<DType::kBFloat16>(job.values + first, blocks, job.block, x);
  }
}

// ---- Scales

struct StoredScale {
  Floats value;
  Words bits;
};

// Rounds to the nearest number of the type, ties to even.
ONNX_EXTERNAL_INLINE StoredScale stored(Floats scale, DType type) {
  const Words bits = (Words)scale;
  if (type == DType::kFloat32) {
    return {scale, bits};
  }
  if (type == DType::kBFloat16) {
    const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
    return {(Floats)rounded, rounded >> 16};
  }
  const Words magnitude = bits & kMagnitude;
  const Words sign = bits & ~kMagnitude;
  const Words rounded = (magnitude + 0xfffU + ((magnitude >> 13) & 1U)) & ~0x1fffU;
  // Floats in [0.5, 1) are 2^-24 apart, like subnormal halves, so the addition does the rounding.
  const Floats shifted = (Floats)magnitude + 0.5F;
  const Words count = (Words)shifted - (Words)all(0.5F);
  const auto is_small = magnitude < kLeastNormalHalf;
  const Words value = is_small ? (Words)(shifted - 0.5F) : rounded;
  const Words half = is_small ? count : (rounded - kHalfRebias) >> 13;
  return {(Floats)(value | sign), half | (sign >> 16)};
}

// ---- Codes

// What is chosen for a block that is multiplied by `up`.
struct Choice {
  Floats scale;
  Floats zero;
};

// Each factor gives codes, and these the best scale; the one that leaves the least error wins.
// `scale` and `low` are those of y.
ONNX_EXTERNAL_INLINE Choice search(const BlockJob& job, const Floats* y, Floats scale, Floats low,
                                   Floats zero, Floats top) {
  const Floats inverse = scale != 0.0F ? 1.0F / scale : Floats{};
  Floats best_product = {};
  Floats best_square = all(1.0F);
  Floats best_zero = zero;
  for (std::size_t step = 0; step < job.steps; ++step) {
    const Floats tried = inverse * job.factors[step];
    if (job.zero_points) {
      zero = truncated(clamped(-low * tried + 0.5F, top));
    }
    const Floats shift = zero + 0.5F;
    Floats product = {};
    Floats square = {};
    for (std::uint32_t k = 0; k < job.block; ++k) {
      const Floats code = truncated(clamped(y[k] * tried + shift, top)) - zero;
      product += y[k] * code;
      square += code * code;
    }
    const auto is_better =
        (product * product * best_square > best_product * best_product * square) & (square > 0.0F);
    best_product = is_better ? product : best_product;
    best_square = is_better ? square : best_square;
    best_zero = is_better ? zero : best_zero;
  }
  return {best_product / best_square, best_zero};
}

// What encoding needs, for each block.
struct Encoding {
  Floats inverse;  // of the scale
  Floats zero;
  Floats unit;   // by which values are multiplied before errors are summed up
  Floats scale;  // of values in that unit
};

// Codes as words of 32 bits, the first in the lowest. With errors, `differences` and `squares` get
// their sums.
template <int kBits, bool kErrors>
void encode(const BlockJob& job, const Floats* x, const Encoding& by, Words* words,
            Floats& differences, Floats& squares) {
  constexpr std::uint32_t kCodes = 32 / kBits;
  const Floats inverse = by.inverse;
  const Floats shift = by.zero + 0.5F;
  const Floats top = all(float((1 << kBits) - 1) + 0.5F);
  Floats difference = {};
  Floats square = {};
  for (std::uint32_t first = 0; first < job.block; first += kCodes) {
    Words word = {};
    for (std::uint32_t i = 0; i < kCodes; ++i) {
      const Ints code = to_ints(clamped(x[first + i] * inverse + shift, top));
      word |= (Words)code << (kBits * i);
      if constexpr (kErrors) {
        const Floats value = x[first + i] * by.unit;
        const Floats off = value - (to_floats(code) - by.zero) * by.scale;
        difference += off * off;
        square += value * value;
      }
    }
    *words++ = word;
  }
  differences = difference;
  squares = square;
}

void encode_any(const BlockJob& job, const Floats* x, const Encoding& by, Words* words,
                Floats& differences, Floats& squares) {
  const bool errors = job.differences != nullptr;
  if (job.bits == 4) {
    errors ? encode<4, true>(job, x, by, words, differences, squares)
           : encode<4, false>(job, x, by, words, differences, squares);
  } else {
    errors ? encode<8, true>(job, x, by, words, differences, squares)
           : encode<8, false>(job, x, by, words, differences, squares);
  }
}

// ---- Storing

// The words of each lane, one lane after the other, `count` words each.
void store_words(const Words* words, std::size_t count, std::byte* out) {
  if (count % kLanes == 0) {
    for (std::size_t w = 0; w < count; w += kLanes) {
      Floats tile[kLanes];
      std::memcpy(tile, words + w, sizeof(tile));
      transpose(tile);
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        std::memcpy(out + (lane * count + w) * 4, &tile[lane], sizeof(Floats));
      }
    }
    return;
  }
  typedef std::uint32_t Four __attribute__((vector_size(16)));
  for (std::size_t w = 0; w + 4 <= count; w += 4) {
    for (std::size_t lane = 0; lane < kLanes; lane += 4) {
      Four row[4];
      for (std::size_t i = 0; i < 4; ++i) {
        std::memcpy(&row[i], reinterpret_cast<const std::byte*>(&words[w + i]) + lane * 4, 16);
      }
      const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
      const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
      const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
      const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const Four turned[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                              __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                              __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                              __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
      for (std::size_t i = 0; i < 4; ++i) {
        std::memcpy(out + ((lane + i) * count + w) * 4, &turned[i], 16);
      }
    }
  }
  for (std::size_t w = count - count % 4; w < count; ++w) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t word = words[w][lane];
      std::memcpy(out + (lane * count + w) * 4, &word, 4);
    }
  }
}

void store_group(const BlockJob& job, std::size_t first, std::size_t blocks, const Words* words,
                 Words scales, Floats zeros) {
  const std::size_t count = std::size_t{job.block} * job.bits / 32;
  std::byte* const codes = job.codes + first * count * 4;
  if (blocks == kLanes) {
    store_words(words, count, codes);
  } else {
    std::byte group[kLanes * kMostColumns];
    store_words(words, count, group);
    std::memcpy(codes, group, blocks * count * 4);
  }
  const std::size_t scale_bytes = job.scales_type == DType::kFloat32 ? 4 : 2;
  const Ints zero_codes = to_ints(zeros);
  for (std::size_t lane = 0; lane < blocks; ++lane) {
    const std::uint32_t scale = scales[lane];  // little-endian
    std::memcpy(job.scales + (first + lane) * scale_bytes, &scale, scale_bytes);
    if (job.zero_points) {
      job.zeros[first + lane] = static_cast<std::uint8_t>(zero_codes[lane]);
    }
  }
}

// ---- A group of blocks, one a lane

struct Extremes {
  Floats high = {};   // at least 0
  Floats low = {};    // at most 0
  Ints largest = {};  // the bits of the largest magnitude; of NaN the largest of all
};

ONNX_EXTERNAL_INLINE Extremes extremes_of(const Floats* x, std::uint32_t columns) {
  Extremes found;
  for (std::uint32_t k = 0; k < columns; ++k) {
    found.high = larger(x[k], found.high);
    found.low = smaller(x[k], found.low);
    const Ints magnitude = (Ints)x[k] & static_cast<std::int32_t>(kMagnitude);
    found.largest = magnitude > found.largest ? magnitude : found.largest;
  }
  return found;
}

// The scale of y = x * up if there is no search.
ONNX_EXTERNAL_INLINE Floats nearest_scale(const BlockJob& job, Floats high, Floats low) {
  if (job.zero_points) {
    return (high - low) / float((1U << job.bits) - 1);
  }
  return (-low >= high ? low : high) / -float(1U << (job.bits - 1));
}

// `x` is overwritten. Returns the faults.
std::uint32_t quantize_group(const BlockJob& job, std::size_t first, std::size_t blocks,
                             Floats* x) {
  const Extremes found = extremes_of(x, job.block);
  // By a power of two to [2, 4), where no sum overflows; exact. Blocks with nothing but subnormal
  // numbers, and those in the binade above, get the scale 0.
  const Words field = (Words)found.largest & kInfinity;
  const Words exponent = field > kLeastNormal ? field : all(kLeastNormal);
  const Floats up = (Floats)(all(255U << 23) - exponent);
  const Floats down = (Floats)(exponent - (1U << 23));

  const Floats top = all(float((1U << job.bits) - 1) + 0.5F);
  const Floats middle = all(float(1U << (job.bits - 1)));
  const Floats low = found.low * up;
  Choice choice = {nearest_scale(job, found.high * up, low), middle};
  Floats unit = up;
  if (job.steps != 0) {
    for (std::uint32_t k = 0; k < job.block; ++k) {
      x[k] *= up;
    }
    unit = all(1.0F);
    choice = search(job, x, choice.scale, low, middle, top);
  }

  StoredScale scale = stored(choice.scale * down, job.scales_type);
  const Words magnitude = (Words)scale.value & kMagnitude;
  const auto is_zero = magnitude < kLeastNormal;
  // In a symmetric scheme -0, which is what ONNX Runtime's quantizer makes of zeros.
  const std::uint32_t zero_bits = job.zero_points                      ? 0
                                  : job.scales_type == DType::kFloat32 ? ~kMagnitude
                                                                       : 0x8000U;
  scale.bits = is_zero ? all(zero_bits) : scale.bits;
  const Floats scaled = is_zero ? Floats{} : scale.value * up;  // of y
  const Floats divisor = is_zero ? all(1.0F) : scaled;
  Floats zero = choice.zero;
  if (job.zero_points) {
    zero = job.steps != 0 ? zero : truncated(clamped(-low / divisor + 0.5F, top));
    zero = is_zero ? Floats{} : zero;
  }
  const Floats inverse = (is_zero ? Floats{} : 1.0F / divisor) * unit;

  Words words[kMostColumns / 4];
  Floats differences = {};
  Floats squares = {};
  encode_any(job, x, {inverse, zero, unit, scaled}, words, differences, squares);
  store_group(job, first, blocks, words, scale.bits, zero);
  if (job.differences != nullptr) {
    for (std::size_t lane = 0; lane < blocks; ++lane) {
      job.differences[first + lane] = differences[lane];
      job.squares[first + lane] = squares[lane];
      job.exponents[first + lane] = static_cast<std::int32_t>(exponent[lane] >> 23);
    }
  }
  const Words not_finite = (Words)found.largest >= kInfinity ? all(kNotFinite) : Words{};
  const Words overflow =
      magnitude >= (job.scales_type == DType::kFloat16 ? kHalfOverflow : kInfinity)
          ? all(kScaleOverflow)
          : Words{};
  std::uint32_t faults = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    faults |= not_finite[lane] | overflow[lane];
  }
  return faults;
}

std::uint32_t quantize_lanes(const BlockJob& job) {
  Floats x[kMostColumns];
  std::uint32_t faults = 0;
  for (std::size_t first = 0; first < job.count; first += kLanes) {
    const std::size_t left = job.count - first;
    const std::size_t blocks = left < kLanes ? left : kLanes;
    load_any(job, first, blocks, x);
    faults |= quantize_group(job, first, blocks, x);
  }
  return faults;
}

}  // namespace
}  // namespace onnx_external
