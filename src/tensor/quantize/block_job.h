// Declares the quantization kernels, which convert blocks of values to codes, and the structure of
// their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onnx_external/dtype.h"

namespace onnx_external {

struct BlockJob {
  std::uint32_t bits = 4;
  std::uint32_t block = 32;
  bool zero_points = false;
  DType values_type = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  DType scales_type = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  // The factors by which the search for a scale multiplies the reciprocal of the scale, one for
  // each step.
  const float* factors = nullptr;
  std::size_t steps = 0;

  std::size_t count = 0;                     // number of blocks
  const std::byte* const* values = nullptr;  // address of each block
  std::byte* codes = nullptr;                // codes of all blocks without gaps, like the scales
  std::byte* scales = nullptr;
  std::uint8_t* zeros = nullptr;  // zero points, one per byte; may be null if the scheme has none

  // For each block, the sum of the squared differences and the sum of the squared values, in units
  // of 4^(exponent - 128). If null, they are not computed.
  float* differences = nullptr;
  float* squares = nullptr;
  std::int32_t* exponents = nullptr;
};

// The faults that make codes useless. A kernel returns all faults that occurred, as bits, or 0.
inline constexpr std::uint32_t kNotFinite = 1;      // a value is NaN or infinite
inline constexpr std::uint32_t kScaleOverflow = 2;  // a scale is too large for its type

// The kernels. All of them produce the same bytes. They require the default floating-point
// environment. quantize_blocks_avx2() needs a processor with AVX2, and quantize_blocks_avx512()
// needs AVX-512 F, BW, DQ and VL; both exist only on x86-64.
[[nodiscard]] std::uint32_t quantize_blocks_portable(const BlockJob& job);
[[nodiscard]] std::uint32_t quantize_blocks_avx2(const BlockJob& job);
[[nodiscard]] std::uint32_t quantize_blocks_avx512(const BlockJob& job);

}  // namespace onnx_external
