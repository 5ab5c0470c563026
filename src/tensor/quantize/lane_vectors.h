// Defines SIMD vectors of ONNX_EXTERNAL_LANES floats, which have one block to quantize in each
// lane. Also defines functions that load blocks and store codes, and the operations that differ
// between processors. lane_kernel.h uses this header, and explains how both headers are compiled.
//
// Everything in this header is in an unnamed namespace, and calls no function template of the
// standard library. Otherwise the linker would keep only one copy of such a function, which may be
// the copy that was compiled for another processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "onnx_external/dtype.h"

#define ONNX_EXTERNAL_INLINE [[gnu::always_inline]] inline

namespace onnx_external {
namespace {

constexpr int kLanes = ONNX_EXTERNAL_LANES;
constexpr std::uint32_t kInfinity = 0x7f800000;
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

// Return the larger or smaller value of each pair. If both values are equal or one is NaN, return
// b, like the processor's instructions.
#if defined(__AVX512F__)
constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 warns about the forms without a mask
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
ONNX_EXTERNAL_INLINE Floats truncated(Floats a) {  // only for small numbers
  return to_floats(to_ints(a));
}
#endif

// Limits a value to the range of codes, before it is truncated to a code.
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
  // Subnormal halves are multiples of 2^-24 and are converted as integers.
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

// Loads column k of `blocks` blocks into x[k]. If there are fewer blocks than lanes, the remaining
// lanes repeat the last block.
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
    for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {  // pairs of columns as 32-bit words
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

// ---- Storing

// Stores `count` words of each lane, one lane after another.
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

}  // namespace
}  // namespace onnx_external
