// Converts rows of quantized GGUF blocks to the layout of the inputs of ONNX Runtime's MatMulNBits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// The destinations of the parts of a row in pack_row().
struct PackedBlocks {
  std::uint8_t* codes = nullptr;  // BlockType::bits each, the first code in the low bits
  float* scales = nullptr;        // one per group
  float* terms = nullptr;         // one per group; null for types without minima
};

// Packs `count` blocks. Codes are shifted so that the type's middle becomes 2^(bits-1), which
// MatMulNBits interprets as 0; terms are minimum + middle * scale. Requires: the type is quantized.
void pack_row(const BlockType& type, const std::uint8_t* blocks, std::size_t count,
              const PackedBlocks& out);

}  // namespace onnx_external
