// Quantizes several blocks at the same time, one in each lane of SIMD vectors.
//
// Each source file that includes this header is compiled for a different processor. It defines
// ONNX_EXTERNAL_LANES, the number of floats in a vector, which must not be wider than the
// processor's vectors. After a transposition, each lane has one block and executes the sequential
// algorithm in docs/quantize.md, so the results do not depend on the number of lanes. The source
// files are compiled without contracting multiplications and additions.
//
// Everything in this header is in an unnamed namespace, for the reason stated in lane_vectors.h.
#pragma once

#include <cfloat>

#include "tensor/quantize/block_job.h"
#include "tensor/quantize/lane_vectors.h"

static_assert(FLT_EVAL_METHOD == 0, "the rule rounds every operation to float32");

namespace onnx_external {
namespace {

constexpr std::uint32_t kMostColumns = 256;
constexpr std::uint32_t kMagnitude = 0x7fffffff;
constexpr std::uint32_t kLeastNormal = 0x00800000;
constexpr std::uint32_t kHalfOverflow = 0x47800000;     // 2^16
constexpr std::uint32_t kLeastNormalHalf = 0x38800000;  // 2^-14

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

// Prefetches the blocks of the next group while a group is computed, because they are too far apart
// for the processor's own prefetcher. A few cache lines are requested at a time. If all of them
// were requested at once, the processor would wait for some: int8 in blocks of 128 took 2.1 times
// as long with AVX-512 (Zen 4).
class NextGroup {
 public:
  NextGroup(const BlockJob& job, std::size_t first)
      : value_bytes_(job.values_type == DType::kFloat32 ? 4 : 2),
        block_bytes_(job.block * value_bytes_) {
    const std::size_t left = first < job.count ? job.count - first : 0;
    block_ = job.values + (job.count - left);
    end_ = block_ + (left < kLanes ? left : kLanes);
  }

  // Requests the bytes of `columns` columns of a group.
  ONNX_EXTERNAL_INLINE void expect(std::size_t columns) {
    const std::size_t bytes = columns * value_bytes_ * kLanes;
    for (std::size_t i = 0; i < bytes && block_ != end_; i += kLine) {
      __builtin_prefetch(*block_ + byte_);
      byte_ += kLine;
      if (byte_ >= block_bytes_) {
        byte_ = 0;
        ++block_;
      }
    }
  }

 private:
  static constexpr std::size_t kLine = 64;

  const std::byte* const* block_;
  const std::byte* const* end_;
  std::size_t value_bytes_;
  std::size_t block_bytes_;
  std::size_t byte_ = 0;  // of the block
};

// ---- Scales

struct StoredScale {
  Floats value;
  Words bits;
};

// Rounds a scale to the nearest value of the type, ties to even.
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

// The scale and zero point for a block whose values are multiplied by `up`.
struct Choice {
  Floats scale;
  Floats zero;
};

// Searches for the best scale. For each factor, computes codes, and the best scale for these codes.
// Returns the scale with the smallest error. `scale` and `low` are those of `y`.
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

// For each lane, the parameters for computing the codes of a block.
struct Encoding {
  Floats inverse;  // reciprocal of the scale
  Floats zero;
  Floats unit;   // factor by which values are multiplied before errors are summed
  Floats scale;  // scale of values in that unit
};

// Writes codes, packed into words of 32 bits with the first code in the lowest bits. With kErrors,
// also computes the sums `differences` and `squares`.
template <int kBits, bool kErrors>
void encode(const BlockJob& job, NextGroup next, const Floats* x, const Encoding& by, Words* words,
            Floats& differences, Floats& squares) {
  constexpr std::uint32_t kCodes = 32 / kBits;
  const Floats inverse = by.inverse;
  const Floats shift = by.zero + 0.5F;
  const Floats top = all(float((1 << kBits) - 1) + 0.5F);
  Floats difference = {};
  Floats square = {};
  for (std::uint32_t first = 0; first < job.block; first += kCodes) {
    next.expect(kCodes / 2);
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

void encode_any(const BlockJob& job, const NextGroup& next, const Floats* x, const Encoding& by,
                Words* words, Floats& differences, Floats& squares) {
  const bool errors = job.differences != nullptr;
  if (job.bits == 4) {
    errors ? encode<4, true>(job, next, x, by, words, differences, squares)
           : encode<4, false>(job, next, x, by, words, differences, squares);
  } else {
    errors ? encode<8, true>(job, next, x, by, words, differences, squares)
           : encode<8, false>(job, next, x, by, words, differences, squares);
  }
}

// ---- A group of blocks, one in each lane

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

struct Errors {
  Floats differences;
  Floats squares;
  Words exponents;
};

void store_errors(const BlockJob& job, std::size_t first, std::size_t blocks,
                  const Errors& errors) {
  for (std::size_t lane = 0; lane < blocks; ++lane) {
    job.differences[first + lane] = errors.differences[lane];
    job.squares[first + lane] = errors.squares[lane];
    job.exponents[first + lane] = static_cast<std::int32_t>(errors.exponents[lane]);
  }
}

struct Extremes {
  Floats high = {};   // at least 0
  Floats low = {};    // at most 0
  Ints largest = {};  // the bits of the largest magnitude; a NaN counts as the largest
};

// Requests half of the next group; encode() requests the rest.
ONNX_EXTERNAL_INLINE Extremes extremes_of(const Floats* x, std::uint32_t columns, NextGroup& next) {
  Extremes found;
  for (std::uint32_t k = 0; k < columns; ++k) {
    if (k % 4 == 0) {
      next.expect(2);
    }
    found.high = larger(x[k], found.high);
    found.low = smaller(x[k], found.low);
    const Ints magnitude = (Ints)x[k] & static_cast<std::int32_t>(kMagnitude);
    found.largest = magnitude > found.largest ? magnitude : found.largest;
  }
  return found;
}

// Returns the scale for values y = x * up, for schemes without a search.
ONNX_EXTERNAL_INLINE Floats nearest_scale(const BlockJob& job, Floats high, Floats low) {
  if (job.zero_points) {
    return (high - low) / float((1U << job.bits) - 1);
  }
  return (-low >= high ? low : high) / -float(1U << (job.bits - 1));
}

// Returns the faults of a group. `scale` is the magnitude of the stored scale.
ONNX_EXTERNAL_INLINE std::uint32_t faults_of(const BlockJob& job, const Extremes& found,
                                             Words scale) {
  const std::uint32_t too_large = job.scales_type == DType::kFloat16 ? kHalfOverflow : kInfinity;
  const Words not_finite = (Words)found.largest >= kInfinity ? all(kNotFinite) : Words{};
  const Words overflow = scale >= too_large ? all(kScaleOverflow) : Words{};
  std::uint32_t faults = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    faults |= not_finite[lane] | overflow[lane];
  }
  return faults;
}

// Quantizes a group of blocks and returns its faults. `x` is overwritten.
std::uint32_t quantize_group(const BlockJob& job, std::size_t first, std::size_t blocks,
                             Floats* x) {
  NextGroup next(job, first + kLanes);
  const Extremes found = extremes_of(x, job.block, next);
  // Multiply the values by a power of two, so that the largest is in [2, 4), where no sum
  // overflows. This is exact. Blocks whose values are all subnormal, or in the binade above, get
  // the scale 0.
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
  // In a symmetric scheme the scale of a block of zeros is -0, as in ONNX Runtime's quantizer.
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
  encode_any(job, next, x, {inverse, zero, unit, scaled}, words, differences, squares);
  store_group(job, first, blocks, words, scale.bits, zero);
  if (job.differences != nullptr) {
    store_errors(job, first, blocks, {differences, squares, exponent >> 23});
  }
  return faults_of(job, found, magnitude);
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
