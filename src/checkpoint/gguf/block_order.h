// Detects the byte order of the quantized blocks in a GGUF file. In little-endian files, blocks are
// little-endian. In big-endian files, their byte order depends on the program that quantized them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "checkpoint/gguf/block_types.h"

namespace onnx_external {

// Reverses the bytes of each number in `blocks` that ggml reads in the machine's byte order.
// `blocks` are whole blocks. Requires: the type is quantized.
void swap_numbers(const BlockType& type, std::span<std::byte> blocks);

// Infers the byte order of blocks from their scales, which have similar magnitudes only if they are
// read in the right byte order.
class BlockOrder {
 public:
  // Adds some whole blocks of a tensor to the statistics.
  void add(const BlockType& type, std::span<const std::byte> blocks);

  // Returns whether the scales are big-endian. ggml on a big-endian machine and gguf-py's byte
  // order converter write big-endian scales, and gguf-py's quantizers write little-endian ones.
  // Returns true if the scales do not determine the order.
  [[nodiscard]] bool is_big() const;

 private:
  std::uint64_t count_ = 0;
  // Sums over the exponents of the scales, read as little-endian and as big-endian.
  std::array<std::uint64_t, 2> spread_{};
};

}  // namespace onnx_external
