#include <array>
#include <bit>
#include <cstddef>

#include "checkpoint/gguf/unpack_blocks.h"

namespace onnx_external {
namespace {

constexpr std::size_t kHalfBlock = 16;
constexpr std::size_t kQuarter = 32;  // bytes whose planes follow each other in blocks of blocks
constexpr std::size_t kHalves = 2;    // of a block of blocks
constexpr std::size_t kHalfValues = 128;

std::int8_t code(int value) {
  return static_cast<std::int8_t>(value);
}

// Element i is in the low half of byte i, element i + 16 in the high half.
void low_then_high(const std::uint8_t* bytes, int minus, std::int8_t* out) {
  for (std::size_t i = 0; i < kHalfBlock; ++i) {
    out[i] = code((bytes[i] & 15) - minus);
    out[kHalfBlock + i] = code((bytes[i] >> 4) - minus);
  }
}

// Does the same with a fifth bit: bit i is that of element i.
void with_fifth_bit(const std::uint8_t* fifth, const std::uint8_t* bytes, int minus,
                    std::int8_t* out) {
  std::array<std::uint8_t, 2 * kHalfBlock> bits;
  spread_bits(fifth, bits.size(), bits.data());
  for (std::size_t i = 0; i < kHalfBlock; ++i) {
    out[i] = code(((bytes[i] & 15) | (bits[i] << 4)) - minus);
    out[kHalfBlock + i] = code(((bytes[i] >> 4) | (bits[kHalfBlock + i] << 4)) - minus);
  }
}

// 128 codes of 2 bits: 32 in the lowest bits of 32 bytes, then those in the next bits.
void planes_of_two(const std::uint8_t* bytes, std::int8_t* out) {
  for (unsigned plane = 0; plane < 4; ++plane) {
    for (std::size_t i = 0; i < kQuarter; ++i) {
      out[plane * kQuarter + i] = code((bytes[i] >> (2 * plane)) & 3);
    }
  }
}

// Eight scales and minima of 6 bits. The last four have their upper bits in those of the first.
void six_bit_scales(const std::uint8_t* bytes, float scale, float minimum, const BlockCodes& out) {
  for (std::size_t i = 0; i < 4; ++i) {
    const int low = bytes[i];
    const int middle = bytes[4 + i];
    const int high = bytes[8 + i];
    out.scales[i] = scale * static_cast<float>(low & 63);
    out.minima[i] = -(minimum * static_cast<float>(middle & 63));
    out.scales[4 + i] = scale * static_cast<float>((high & 15) | ((low >> 2) & 48));
    out.minima[4 + i] = -(minimum * static_cast<float>((high >> 4) | ((middle >> 2) & 48)));
  }
}

}  // namespace

void unpack_q4_0(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  low_then_high(block + 2, 8, out.codes.data());
}

void unpack_q4_1(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  out.minima[0] = block_half(block + 2);
  low_then_high(block + 4, 0, out.codes.data());
}

void unpack_q5_0(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  with_fifth_bit(block + 2, block + 6, 16, out.codes.data());
}

void unpack_q5_1(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  out.minima[0] = block_half(block + 2);
  with_fifth_bit(block + 4, block + 8, 0, out.codes.data());
}

void unpack_q8_0(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  std::memcpy(out.codes.data(), block + 2, out.codes.size());
}

void unpack_q2_k(const std::uint8_t* block, const BlockCodes& out) {
  const std::uint8_t* const codes = block + 16;
  const float scale = block_half(block + 80);
  const float minimum = block_half(block + 82);
  for (std::size_t i = 0; i < kMostBlockGroups; ++i) {
    out.scales[i] = scale * static_cast<float>(block[i] & 15);
    out.minima[i] = -(minimum * static_cast<float>(block[i] >> 4));
  }
  for (std::size_t half = 0; half < kHalves; ++half) {
    planes_of_two(codes + half * kQuarter, out.codes.data() + half * kHalfValues);
  }
}

void unpack_q3_k(const std::uint8_t* block, const BlockCodes& out) {
  const std::uint8_t* const third_bits = block;
  const std::uint8_t* const scales = block + 96;
  const float scale = block_half(block + 108);
  for (std::size_t i = 0; i < kMostBlockGroups; ++i) {
    const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    const int high = (scales[8 + i % 4] >> (2 * (i / 4))) & 3;
    out.scales[i] = scale * static_cast<float>((low | (high << 4)) - 32);
  }
  for (std::size_t half = 0; half < kHalves; ++half) {
    std::int8_t* const codes = out.codes.data() + half * kHalfValues;
    planes_of_two(block + 32 + half * kQuarter, codes);
    for (std::size_t plane = 0; plane < 4; ++plane) {
      for (std::size_t i = 0; i < kQuarter; ++i) {
        const int third = (third_bits[i] >> (4 * half + plane)) & 1;
        codes[plane * kQuarter + i] = code(codes[plane * kQuarter + i] + 4 * third - 4);
      }
    }
  }
}

void unpack_q4_k(const std::uint8_t* block, const BlockCodes& out) {
  six_bit_scales(block + 4, block_half(block), block_half(block + 2), out);
  const std::uint8_t* bytes = block + 16;
  for (std::int8_t* codes = out.codes.data(); codes != out.codes.data() + kMostBlockValues;
       codes += 2 * kQuarter, bytes += kQuarter) {
    for (std::size_t i = 0; i < kQuarter; ++i) {
      codes[i] = code(bytes[i] & 15);
      codes[kQuarter + i] = code(bytes[i] >> 4);
    }
  }
}

void unpack_q5_k(const std::uint8_t* block, const BlockCodes& out) {
  six_bit_scales(block + 4, block_half(block), block_half(block + 2), out);
  const std::uint8_t* const fifth = block + 16;
  const std::uint8_t* const bytes = block + 48;
  for (unsigned pair = 0; pair < 4; ++pair) {
    std::int8_t* const codes = out.codes.data() + std::size_t{2} * kQuarter * pair;
    for (std::size_t i = 0; i < kQuarter; ++i) {
      const int byte = bytes[kQuarter * pair + i];
      const int bits = fifth[i] >> (2 * pair);
      codes[i] = code((byte & 15) | ((bits & 1) << 4));
      codes[kQuarter + i] = code((byte >> 4) | ((bits & 2) << 3));
    }
  }
}

void unpack_q6_k(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block + 208);
  for (std::size_t i = 0; i < kMostBlockGroups; ++i) {
    out.scales[i] = scale * static_cast<float>(block_number<std::int8_t>(block + 192 + i));
  }
  for (std::size_t half = 0; half < kHalves; ++half) {
    const std::uint8_t* const low = block + 64 * half;
    const std::uint8_t* const high = block + 128 + kQuarter * half;
    std::int8_t* const codes = out.codes.data() + half * kHalfValues;
    for (std::size_t i = 0; i < kQuarter; ++i) {
      codes[i] = code(((low[i] & 15) | ((high[i] & 3) << 4)) - 32);
      codes[32 + i] = code(((low[32 + i] & 15) | ((high[i] & 12) << 2)) - 32);
      codes[64 + i] = code(((low[i] >> 4) | (high[i] & 48)) - 32);
      codes[96 + i] = code(((low[32 + i] >> 4) | ((high[i] & 192) >> 2)) - 32);
    }
  }
}

}  // namespace onnx_external
