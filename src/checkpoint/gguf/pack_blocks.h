// Packs rows of GGUF blocks as ONNX Runtime's MatMulNBits takes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// The destinations of the parts of a row.
struct PackedBlocks {
  std::uint8_t* codes = nullptr;  // BlockType::bits each, the first in the low bits
  float* scales = nullptr;        // for each group
  float* terms = nullptr;         // for each group; null for types without minima
};

// Packs `count` blocks. Codes are moved so that the type's middle becomes 2^(bits-1), which the
// node takes for 0; terms are minimum + middle * scale. Requires: the type is quantized.
void pack_row(const BlockType& type, const std::uint8_t* blocks, std::size_t count,
              const PackedBlocks& out);

}  // namespace onnx_external
