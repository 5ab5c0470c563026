// Converts rows of quantized GGUF blocks to the input layout of ONNX Runtime's MatMulNBits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// The buffers that pack_row() fills with the parts of a row.
struct PackedBlocks {
  std::uint8_t* codes = nullptr;  // BlockType::bits per code, the first code in the low bits
  float* scales = nullptr;        // one per group
  float* terms = nullptr;         // one per group; null for types without minima
};

// Packs `count` blocks. A number is added to all codes so that the type's middle becomes
// 2^(bits-1), which MatMulNBits interprets as 0. The terms are minimum + middle * scale. Requires:
// the type is quantized.
void pack_row(const BlockType& type, const std::uint8_t* blocks, std::size_t count,
              const PackedBlocks& out);

}  // namespace onnx_external
