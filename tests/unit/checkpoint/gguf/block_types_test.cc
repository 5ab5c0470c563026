#include "checkpoint/gguf/block_types.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace onnx_external {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNull;

const BlockType& type_named(std::string_view name) {
  const auto all = all_block_types();
  return *std::find_if(all.begin(), all.end(),
                       [&](const BlockType& type) { return type.name == name; });
}

// Bytes of a linear congruential generator. At `finite`, places in a block, the upper bit of a
// float16's exponent is cleared: a NaN would have more than one right value.
std::vector<std::byte> blocks_of(const BlockType& type, const std::vector<std::size_t>& finite) {
  constexpr std::size_t kBlocks = 1024;
  std::vector<std::byte> blocks(kBlocks * type.bytes);
  std::uint32_t state = 1;
  for (std::byte& byte : blocks) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  for (std::size_t block = 0; block < kBlocks; ++block) {
    for (const std::size_t place : finite) {
      blocks[block * type.bytes + place] &= std::byte{0xbf};
    }
  }
  return blocks;
}

std::vector<float> decoded(const BlockType& type, std::span<const std::byte> blocks) {
  std::vector<float> out(blocks.size() / type.bytes * type.values);
  decode_row(type, blocks, out);
  return out;
}

struct Decoded {
  std::string_view name;
  std::vector<std::size_t> finite;
  std::uint32_t crc;
};

TEST(BlockTypes, DecodeToTheBitsOfGgufPy) {
  // CRC-32s of what gguf 0.19's dequantize() makes of the same bytes.
  const std::vector<Decoded> all = {
      Decoded{"Q4_0", {1}, 0x854543a7},    Decoded{"Q4_1", {1, 3}, 0x2f45f872},
      Decoded{"Q5_0", {1}, 0xc13ab93a},    Decoded{"Q5_1", {1, 3}, 0xbceb1898},
      Decoded{"Q8_0", {1}, 0x6d7902fe},    Decoded{"Q2_K", {81, 83}, 0x2aa95f48},
      Decoded{"Q3_K", {109}, 0x839f0f6f},  Decoded{"Q4_K", {1, 3}, 0x733d65be},
      Decoded{"Q5_K", {1, 3}, 0xa6fa9fc1}, Decoded{"Q6_K", {209}, 0x555789e4},
      Decoded{"IQ2_XXS", {1}, 0x7c9db1e7}, Decoded{"IQ2_XS", {1}, 0xfbc0c638},
      Decoded{"IQ3_XXS", {1}, 0xcdd7b6ed}, Decoded{"IQ1_S", {1}, 0xa605351c},
      Decoded{"IQ4_NL", {1}, 0xd76bacad},  Decoded{"IQ3_S", {1}, 0xe8e9fc1e},
      Decoded{"IQ2_S", {1}, 0x02211f4b},   Decoded{"IQ4_XS", {1}, 0xc418b0e6},
      Decoded{"IQ1_M", {55}, 0x2f73ac39},  Decoded{"BF16", {1}, 0x214ef01f},
      Decoded{"F16", {1}, 0x6236708e},     Decoded{"TQ1_0", {53}, 0xc490c5d8},
      Decoded{"TQ2_0", {65}, 0xccfc350e},  Decoded{"MXFP4", {}, 0x03fb48fc},
      Decoded{"NVFP4", {}, 0xf1059644},
  };
  for (const Decoded& expected : all) {
    const BlockType& type = type_named(expected.name);
    Crc32 crc;
    const auto values = decoded(type, blocks_of(type, expected.finite));
    crc.update(std::as_bytes(std::span(values)));
    EXPECT_EQ(crc.value(), expected.crc) << expected.name;
  }
}

TEST(BlockTypes, DecodeOneBitAsASign) {
  const BlockType& type = type_named("Q1_0");
  std::vector<std::byte> block(type.bytes);
  block[1] = std::byte{0x40};  // the scale is 2
  block[2] = std::byte{0b00001101};
  const auto values = decoded(type, block);
  EXPECT_THAT(std::span(values).first(5), ElementsAre(2, -2, 2, 2, -2));
  EXPECT_THAT(std::span(values).subspan(8), Each(-2));
}

TEST(BlockTypes, DecodeTwoBitsAroundOne) {
  const BlockType& type = type_named("Q2_0");
  std::vector<std::byte> block(type.bytes, std::byte{0b01010101});
  block[0] = std::byte{0};
  block[1] = std::byte{0xc0};        // the scale is -2
  block[2] = std::byte{0b11100100};  // 0, 1, 2, 3
  const auto values = decoded(type, block);
  EXPECT_THAT(std::span(values).first(4), ElementsAre(2, 0, -2, -4));
  EXPECT_THAT(std::span(values).subspan(4), Each(0));
}

TEST(BlockTypes, UnpackToIntegersOfTheirBits) {
  std::array<std::int8_t, kMostBlockValues> codes{};
  std::array<float, kMostBlockGroups> scales{};
  std::array<float, kMostBlockGroups> minima{};
  for (const BlockType& type : all_block_types()) {
    if (!type.is_quantized()) {
      continue;
    }
    const int most = 1 << (type.bits - 1);
    const auto blocks = blocks_of(type, {});
    for (std::size_t at = 0; at < blocks.size(); at += type.bytes) {
      type.unpack(reinterpret_cast<const std::uint8_t*>(blocks.data() + at),
                  {std::span(codes).first(type.values), std::span(scales).first(type.groups()),
                   std::span(minima).first(type.groups())});
      for (std::size_t i = 0; i < type.values; ++i) {
        ASSERT_GE(codes[i] - type.middle, -most) << type.name;
        ASSERT_LT(codes[i] - type.middle, most) << type.name;
      }
    }
  }
}

TEST(BlockTypes, AreFoundByTheirNumbers) {
  for (const BlockType& type : all_block_types()) {
    EXPECT_EQ(find_block_type(type.id), &type);
  }
  EXPECT_EQ(find_block_type(12)->name, "Q4_K");
  for (const std::uint32_t removed : {4U, 5U, 31U, 33U, 36U, 38U, 43U, 99U, 0xffffffffU}) {
    EXPECT_THAT(find_block_type(removed), IsNull()) << removed;
  }
}

}  // namespace
}  // namespace onnx_external
