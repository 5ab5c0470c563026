#include <array>
#include <bit>
#include <cstddef>

#include "checkpoint/gguf/unpack_blocks.h"

namespace onnx_external {
namespace {

using TableOf16 = std::array<std::int8_t, 16>;

constexpr TableOf16 kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
constexpr TableOf16 kDoubledE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Element i is in the low half of byte i, element i + `half` in the high half. It is not inlined
// because GCC puts a known number of looked-up bytes together in vectors, at a quarter of the
// speed.
[[gnu::noinline]] void from_table(const TableOf16& table, const std::uint8_t* bytes,
                                  std::size_t half, std::int8_t* out) {
  for (std::size_t i = 0; i < half; ++i) {
    out[i] = table[bytes[i] & 15U];
    out[half + i] = table[bytes[i] >> 4U];
  }
}

// Half of 2^(e - 127), since the table of e2m1 is doubled.
float half_of_exponent(std::uint32_t exponent) {
  constexpr std::uint32_t kSubnormal = 0x00200000;  // 2^-128
  return std::bit_cast<float>(exponent < 2 ? kSubnormal << exponent : (exponent - 1) << 23);
}

// Half of a float8 e4m3 without a sign. 0x7f, which would be a NaN, is 0.
float half_of_e4m3(std::uint8_t byte) {
  const int exponent = (byte >> 3) & 15;
  const auto mantissa = static_cast<float>(byte & 7);
  if (byte == 0 || byte == 0x7f) {
    return 0;
  }
  const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 8 + 127) << 23);
  return exponent == 0 ? mantissa * 0x1p-10F : (1 + mantissa / 8) * scale;
}

constexpr std::size_t kHalfBlock = 16;

constexpr std::size_t kPlane = 32;  // bytes of TQ2_0 whose planes follow each other

// The highest digit of base 3 of byte * power / 256, less 1.
std::int8_t ternary_digit(std::uint8_t byte, std::uint8_t power) {
  const auto rest = static_cast<std::uint8_t>(byte * power);
  return static_cast<std::int8_t>(((rest * 3) >> 8) - 1);
}

// `count` bytes hold 4 or 5 digits each: first the highest one of each byte, then the next.
std::int8_t* ternary_digits(const std::uint8_t* bytes, std::size_t count, std::size_t digits,
                            std::int8_t* out) {
  std::uint8_t power = 1;
  for (std::size_t digit = 0; digit < digits; ++digit) {
    for (std::size_t i = 0; i < count; ++i) {
      *out++ = ternary_digit(bytes[i], power);
    }
    power = static_cast<std::uint8_t>(power * 3);
  }
  return out;
}

}  // namespace

void unpack_iq4_nl(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = block_half(block);
  from_table(kIq4Values, block + 2, kHalfBlock, out.codes.data());
}

void unpack_iq4_xs(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  const unsigned high = block_number<std::uint16_t>(block + 2);
  for (std::size_t i = 0; i < out.scales.size(); ++i) {
    const unsigned low = (block[4 + i / 2] >> (4 * (i % 2))) & 15U;
    const unsigned six = low | (((high >> (2 * i)) & 3U) << 4);
    out.scales[i] = scale * static_cast<float>(static_cast<int>(six) - 32);
    from_table(kIq4Values, block + 8 + kHalfBlock * i, kHalfBlock,
               out.codes.data() + 2 * kHalfBlock * i);
  }
}

void unpack_mxfp4(const std::uint8_t* block, const BlockCodes& out) {
  out.scales[0] = half_of_exponent(block[0]);
  from_table(kDoubledE2m1, block + 1, kHalfBlock, out.codes.data());
}

void unpack_nvfp4(const std::uint8_t* block, const BlockCodes& out) {
  constexpr std::size_t kBytes = 8;  // of a group
  for (std::size_t i = 0; i < out.scales.size(); ++i) {
    out.scales[i] = half_of_e4m3(block[i]);
    from_table(kDoubledE2m1, block + 4 + kBytes * i, kBytes, out.codes.data() + 2 * kBytes * i);
  }
}

void unpack_tq1_0(const std::uint8_t* block, const BlockCodes& out) {
  std::int8_t* codes = ternary_digits(block, 32, 5, out.codes.data());
  codes = ternary_digits(block + 32, 16, 5, codes);
  ternary_digits(block + 48, 4, 4, codes);
  out.scales[0] = block_half(block + 52);
}

void unpack_tq2_0(const std::uint8_t* block, const BlockCodes& out) {
  std::int8_t* codes = out.codes.data();
  for (std::size_t first = 0; first < 2 * kPlane; first += kPlane) {
    for (unsigned shift = 0; shift < 8; shift += 2, codes += kPlane) {
      for (std::size_t i = 0; i < kPlane; ++i) {
        codes[i] = static_cast<std::int8_t>(((block[first + i] >> shift) & 3) - 1);
      }
    }
  }
  out.scales[0] = block_half(block + 64);
}

void unpack_q1_0(const std::uint8_t* block, const BlockCodes& out) {
  constexpr std::size_t kValues = 128;
  std::array<std::uint8_t, kValues> bits;
  spread_bits(block + 2, kValues, bits.data());
  for (std::size_t i = 0; i < kValues; ++i) {
    out.codes[i] = static_cast<std::int8_t>(2 * bits[i] - 1);
  }
  out.scales[0] = block_half(block);
}

void unpack_q2_0(const std::uint8_t* block, const BlockCodes& out) {
  constexpr std::size_t kBytes = 16;
  for (std::size_t i = 0; i < kBytes; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      out.codes[4 * i + j] = static_cast<std::int8_t>(((block[2 + i] >> (2 * j)) & 3) - 1);
    }
  }
  out.scales[0] = block_half(block);
}

}  // namespace onnx_external
