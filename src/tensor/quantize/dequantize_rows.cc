#include "tensor/quantize/dequantize_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/half_float.h"
#include "tensor/quantize/float_environment.h"

namespace onnx_external {
namespace {

float scale_at(DType dtype, const std::byte* scales, std::uint64_t index) {
  if (dtype == DType::kFloat32) {
    float scale = 0;
    std::memcpy(&scale, scales + index * sizeof(scale), sizeof(scale));
    return scale;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales + index * sizeof(bits), sizeof(bits));
  return std::bit_cast<float>(dtype == DType::kFloat16 ? float_bits_of_half(bits)
                                                       : std::uint32_t{bits} << 16);
}

// Code number `index` of a run of packed codes.
int code_at(std::uint32_t bits, const std::byte* codes, std::uint64_t index) {
  if (bits == 8) {
    return std::to_integer<int>(codes[index]);
  }
  const auto pair = std::to_integer<unsigned>(codes[index / 2]);
  return static_cast<int>(index % 2 == 0 ? pair & 15U : pair >> 4);
}

void dequantize_block(std::uint32_t bits, const std::byte* codes, int zero, float scale,
                      std::span<float> out) {
  const std::size_t count = out.size();
  if (bits == 8) {
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(std::to_integer<int>(codes[i]) - zero) * scale;
    }
    return;
  }
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    const int pair = std::to_integer<int>(codes[i / 2]);
    out[i] = static_cast<float>((pair & 15) - zero) * scale;
    out[i + 1] = static_cast<float>((pair >> 4) - zero) * scale;
  }
  if (count % 2 != 0) {
    out[count - 1] = static_cast<float>(code_at(bits, codes, count - 1) - zero) * scale;
  }
}

}  // namespace

void dequantize_rows(const Scheme& scheme, std::uint64_t columns, const PackedRowsView& rows,
                     std::span<float> out) {
  const DefaultFloatEnvironment environment;
  const std::uint64_t blocks = (columns + scheme.block - 1) / scheme.block;
  const std::size_t block_bytes = std::size_t{scheme.block} * scheme.bits / 8;
  const std::uint64_t zeros_bytes = (blocks * scheme.bits + 7) / 8;
  const std::uint64_t count = columns == 0 ? 0 : out.size() / columns;
  for (std::uint64_t row = 0; row < count; ++row) {
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const std::uint64_t index = row * blocks + block;
      const std::uint64_t first = block * scheme.block;
      const int zero =
          scheme.zero_points
              ? code_at(scheme.bits, rows.zero_points.data() + row * zeros_bytes, block)
              : 1 << (scheme.bits - 1);
      dequantize_block(scheme.bits, rows.codes.data() + index * block_bytes, zero,
                       scale_at(scheme.scales, rows.scales.data(), index),
                       out.subspan(row * columns + first,
                                   std::min<std::uint64_t>(scheme.block, columns - first)));
    }
  }
}

}  // namespace onnx_external
