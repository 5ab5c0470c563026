// Detects the byte order of blocks. Blocks in little-endian files are little-endian; in big-endian
// files, their byte order depends on the program that quantized them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// Reverses the bytes of each number in whole blocks that ggml reads in the order of the machine.
// Requires: the type is quantized.
void swap_numbers(const BlockType& type, std::span<std::byte> blocks);

// Tells the byte order of blocks by their scales, which are of similar size only if they are read
// in their own order.
class BlockOrder {
 public:
  // Takes some whole blocks of a tensor.
  void add(const BlockType& type, std::span<const std::byte> blocks);

  // Whether the scales are big-endian, as ggml on a big-endian machine and gguf-py's converter of
  // byte orders store them, and not little-endian, as gguf-py's quantizers leave them. True if the
  // scales do not tell.
  [[nodiscard]] bool is_big() const;

 private:
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, 2> spread_{};  // of the exponents: little-endian, big-endian
};

}  // namespace onnx_external
