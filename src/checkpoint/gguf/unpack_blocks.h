// Unpacks the blocks of quantized GGUF types into integers and scales (block_types.h). Blocks are
// little-endian and may have any alignment. Each function is named after the type that it unpacks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "checkpoint/gguf/block_types.h"
#include "tensor/half_float.h"

namespace onnx_external {

// Reads a number in a block.
template <typename Number>
[[nodiscard]] Number block_number(const std::uint8_t* at) {
  Number number;
  std::memcpy(&number, at, sizeof(number));
  return number;
}

[[nodiscard]] inline float block_half(const std::uint8_t* at) {
  return std::bit_cast<float>(float_bits_of_half(block_number<std::uint16_t>(at)));
}

// Unpacks `count` consecutive blocks. The spans of `out` have room for all blocks.
inline void unpack_blocks(const BlockType& type, const std::uint8_t* blocks, std::size_t count,
                          const BlockCodes& out) {
  const std::size_t groups = type.groups();
  for (std::size_t i = 0; i < count; ++i) {
    type.unpack(blocks + i * type.bytes,
                {out.codes.subspan(i * type.values, type.values),
                 out.scales.subspan(i * groups, groups), out.minima.subspan(i * groups, groups)});
  }
}

// Returns the number of blocks that have kMostBlockValues values together. Code that unpacks this
// many blocks before it reads their codes is several times as fast as code that unpacks one small
// block at a time and reads its codes while the processor is still storing them.
[[nodiscard]] inline std::size_t blocks_at_once(const BlockType& type) {
  return kMostBlockValues / type.values;
}

// Expands each bit to a byte, starting with the lowest bit. Requires: `count` is a multiple of 8.
inline void spread_bits(const std::uint8_t* bits, std::size_t count, std::uint8_t* out) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kOneOfEach = 0x8040201008040201;  // bit i of byte i
  for (std::size_t i = 0; i < count / 8; ++i) {
    const std::uint64_t picked = (bits[i] * kOnes) & kOneOfEach;
    const std::uint64_t bytes = ((picked + 0x7f * kOnes) >> 7) & kOnes;
    std::memcpy(out + 8 * i, &bytes, sizeof(bytes));
  }
}

// Codes of 4, 5 and 8 bits.
void unpack_q4_0(const std::uint8_t* block, const BlockCodes& out);
void unpack_q4_1(const std::uint8_t* block, const BlockCodes& out);
void unpack_q5_0(const std::uint8_t* block, const BlockCodes& out);
void unpack_q5_1(const std::uint8_t* block, const BlockCodes& out);
void unpack_q8_0(const std::uint8_t* block, const BlockCodes& out);

// Blocks that consist of inner blocks, whose scales are themselves scaled.
void unpack_q2_k(const std::uint8_t* block, const BlockCodes& out);
void unpack_q3_k(const std::uint8_t* block, const BlockCodes& out);
void unpack_q4_k(const std::uint8_t* block, const BlockCodes& out);
void unpack_q5_k(const std::uint8_t* block, const BlockCodes& out);
void unpack_q6_k(const std::uint8_t* block, const BlockCodes& out);

// Codes that are indices into a table of values. There are two tables: that of IQ4, and that of
// e2m1 with its values doubled.
void unpack_iq4_nl(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq4_xs(const std::uint8_t* block, const BlockCodes& out);
void unpack_mxfp4(const std::uint8_t* block, const BlockCodes& out);
void unpack_nvfp4(const std::uint8_t* block, const BlockCodes& out);

// Codes of 1 and 2 bits.
void unpack_tq1_0(const std::uint8_t* block, const BlockCodes& out);
void unpack_tq2_0(const std::uint8_t* block, const BlockCodes& out);
void unpack_q1_0(const std::uint8_t* block, const BlockCodes& out);
void unpack_q2_0(const std::uint8_t* block, const BlockCodes& out);

// Codes that are indices into a codebook of vectors (codebooks.h).
void unpack_iq1_s(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq1_m(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq2_xxs(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq2_xs(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq2_s(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq3_xxs(const std::uint8_t* block, const BlockCodes& out);
void unpack_iq3_s(const std::uint8_t* block, const BlockCodes& out);

}  // namespace onnx_external
