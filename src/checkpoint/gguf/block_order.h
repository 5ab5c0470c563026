// Detects the byte order of the quantized blocks in a GGUF file. Blocks in little-endian files are
// little-endian; in big-endian files, their byte order depends on the program that quantized them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// Reverses the bytes of each value in whole blocks that ggml reads in the machine's byte order.
// Requires: the type is quantized.
void swap_numbers(const BlockType& type, std::span<std::byte> blocks);

// Infers the byte order of blocks from their scales, which are of similar magnitude only if they
// are read in the right order.
class BlockOrder {
 public:
  // Adds some whole blocks of a tensor to the statistics.
  void add(const BlockType& type, std::span<const std::byte> blocks);

  // Returns whether the scales are big-endian, as written by ggml on a big-endian machine and by
  // gguf-py's byte order converter, and not little-endian, as left by gguf-py's quantizers. True if
  // the scales do not decide.
  [[nodiscard]] bool is_big() const;

 private:
  std::uint64_t count_ = 0;
  // Sums over exponents: read as little-endian, as big-endian.
  std::array<std::uint64_t, 2> spread_{};
};

}  // namespace onnx_external
