#include <bit>
#include <cstddef>

#include "checkpoint/gguf/codebooks.h"
#include "checkpoint/gguf/unpack_blocks.h"

namespace onnx_external {
namespace {

constexpr std::size_t kEight = 8;  // the values whose signs make a byte
constexpr unsigned kSevenBits = 127;

// The signs of eight values: 7 bits, and an eighth that makes the number of minus signs even.
unsigned even_signs(unsigned seven) {
  return seven | ((static_cast<unsigned>(std::popcount(seven)) & 1U) << 7);
}

void put_signed(const std::int8_t* values, unsigned signs, std::size_t count, std::int8_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::int8_t>(((signs >> i) & 1U) != 0 ? -values[i] : values[i]);
  }
}

// Two entries of four values.
void put_fours(const std::int8_t* entries, unsigned first, unsigned second, unsigned signs,
               std::int8_t* out) {
  put_signed(entries + std::size_t{4} * first, signs, 4, out);
  put_signed(entries + std::size_t{4} * second, signs >> 4, 4, out + 4);
}

// A scale of 4 bits for group i.
float scale_of(const std::uint8_t* scales, std::size_t i) {
  return static_cast<float>((scales[i / 2] >> (4 * (i % 2))) & 15);
}

// 8 times entry + 1/8, or entry - 1/8.
void put_shifted(unsigned entry, bool is_below, std::int8_t* out) {
  const std::int8_t* const values = iq1_entries() + kEight * entry;
  for (std::size_t i = 0; i < kEight; ++i) {
    out[i] = static_cast<std::int8_t>(values[i] + (is_below ? -1 : 1));
  }
}

}  // namespace

void unpack_iq2_xxs(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    const std::uint8_t* const at = block + 2 + kEight * group;
    const auto word = block_number<std::uint32_t>(at + 4);
    out.scales[group] = scale * (0.5F + static_cast<float>(word >> 28)) * 0.25F;
    for (std::size_t i = 0; i < 4; ++i) {
      put_signed(iq2_xxs_entries() + kEight * at[i], even_signs((word >> (7 * i)) & kSevenBits),
                 kEight, out.codes.data() + (4 * group + i) * kEight);
    }
  }
}

void unpack_iq2_xs(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    out.scales[group] = scale * (0.5F + scale_of(block + 66, group)) * 0.25F;
  }
  for (std::size_t i = 0; i < out.codes.size() / kEight; ++i) {
    const unsigned word = block_number<std::uint16_t>(block + 2 + 2 * i);
    put_signed(iq2_xs_entries() + kEight * (word & 511U), even_signs(word >> 9), kEight,
               out.codes.data() + kEight * i);
  }
}

void unpack_iq2_s(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  const std::uint8_t* const signs = block + 34;
  const std::uint8_t* const high = block + 66;
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    out.scales[group] = scale * (0.5F + scale_of(block + 74, group)) * 0.25F;
  }
  for (std::size_t i = 0; i < out.codes.size() / kEight; ++i) {
    const unsigned entry = block[2 + i] | (((high[i / 4] >> (2 * (i % 4))) & 3U) << 8);
    put_signed(iq2_s_entries() + kEight * entry, signs[i], kEight, out.codes.data() + kEight * i);
  }
}

void unpack_iq3_xxs(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    const auto word = block_number<std::uint32_t>(block + 66 + 4 * group);
    out.scales[group] = scale * (0.5F + static_cast<float>(word >> 28)) * 0.5F;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t eight = 4 * group + i;
      put_fours(iq3_xxs_entries(), block[2 + 2 * eight], block[3 + 2 * eight],
                even_signs((word >> (7 * i)) & kSevenBits), out.codes.data() + kEight * eight);
    }
  }
}

void unpack_iq3_s(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  const std::uint8_t* const high = block + 66;
  const std::uint8_t* const signs = block + 74;
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    out.scales[group] = scale * (1 + 2 * scale_of(block + 106, group));
  }
  const auto entry = [&](std::size_t i) {
    return block[2 + i] | (((high[i / kEight] >> (i % kEight)) & 1U) << 8);
  };
  for (std::size_t i = 0; i < out.codes.size() / kEight; ++i) {
    put_fours(iq3_s_entries(), entry(2 * i), entry(2 * i + 1), signs[i],
              out.codes.data() + kEight * i);
  }
}

void unpack_iq1_s(const std::uint8_t* block, const BlockCodes& out) {
  const float scale = block_half(block);
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    const unsigned word = block_number<std::uint16_t>(block + 34 + 2 * group);
    out.scales[group] = scale * static_cast<float>(2 * ((word >> 12) & 7U) + 1) * 0.125F;
    for (std::size_t i = 4 * group; i < 4 * group + 4; ++i) {
      const unsigned entry = block[2 + i] | (((word >> (3 * (i % 4))) & 7U) << 8);
      put_shifted(entry, (word & 0x8000U) != 0, out.codes.data() + kEight * i);
    }
  }
}

void unpack_iq1_m(const std::uint8_t* block, const BlockCodes& out) {
  const std::uint8_t* const high = block + 32;
  // The upper four bits of four words are the float16 scale of all, the lowest bits first.
  unsigned half = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    half |= static_cast<unsigned>(block[49 + 2 * i] >> 4) << (4 * i);
  }
  const float scale = std::bit_cast<float>(float_bits_of_half(static_cast<std::uint16_t>(half)));
  for (std::size_t group = 0; group < out.scales.size(); ++group) {
    const unsigned word = block_number<std::uint16_t>(block + 48 + 2 * (group / 4));
    const unsigned three = (word >> (3 * (group % 4))) & 7U;
    out.scales[group] = scale * static_cast<float>(2 * three + 1) * 0.125F;
  }
  for (std::size_t i = 0; i < out.codes.size() / kEight; ++i) {
    const unsigned bits = static_cast<unsigned>(high[i / 2]) >> (4 * (i % 2));
    put_shifted(block[i] | ((bits & 7U) << 8), (bits & 8U) != 0, out.codes.data() + kEight * i);
  }
}

}  // namespace onnx_external
