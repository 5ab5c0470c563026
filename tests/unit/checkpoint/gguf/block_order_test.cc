#include "checkpoint/gguf/block_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

namespace onnx_external {
namespace {

const BlockType& ordered_type(std::string_view name) {
  const auto all = all_block_types();
  return *std::find_if(all.begin(), all.end(),
                       [&](const BlockType& type) { return type.name == name; });
}

// Blocks of Q8_0, each with a scale.
std::vector<std::byte> scaled_blocks(const std::vector<std::uint16_t>& scales) {
  constexpr std::size_t kBytes = 34;
  std::vector<std::byte> blocks(scales.size() * kBytes);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    std::memcpy(blocks.data() + i * kBytes, &scales[i], sizeof(scales[i]));
  }
  return blocks;
}

TEST(BlockOrder, SwapsNumbersAndNoSingleBytes) {
  for (const BlockType& type : all_block_types()) {
    if (!type.is_quantized()) {
      continue;
    }
    std::vector<std::byte> blocks(2 * std::size_t{type.bytes});
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = static_cast<std::byte>(i);
    }
    const std::vector<std::byte> before = blocks;
    swap_numbers(type, blocks);
    EXPECT_EQ(blocks == before, type.name == "MXFP4" || type.name == "NVFP4") << type.name;
    std::vector<std::byte> sorted = blocks;
    std::vector<std::byte> wanted = before;
    std::sort(sorted.begin(), sorted.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(sorted, wanted) << type.name;
    swap_numbers(type, blocks);
    EXPECT_EQ(blocks, before) << type.name;
  }
}

TEST(BlockOrder, IsToldByScalesOfSimilarSize) {
  const BlockType& type = ordered_type("Q8_0");
  std::vector<std::uint16_t> scales;
  for (std::uint16_t i = 0; i < 40; ++i) {
    scales.push_back(static_cast<std::uint16_t>(0x2000 + 77 * i));  // 0.008 to 0.05
  }
  BlockOrder little;
  little.add(type, scaled_blocks(scales));
  EXPECT_FALSE(little.is_big());
  std::vector<std::byte> swapped = scaled_blocks(scales);
  swap_numbers(type, swapped);
  BlockOrder big;
  big.add(type, swapped);
  EXPECT_TRUE(big.is_big());
}

TEST(BlockOrder, IsThatOfTheFileIfScalesDoNotTell) {
  EXPECT_TRUE(BlockOrder().is_big());
  BlockOrder order;
  order.add(ordered_type("Q8_0"), scaled_blocks({0, 0x2101, 0x2101, 0}));
  order.add(ordered_type("MXFP4"), std::vector<std::byte>(17));
  EXPECT_TRUE(order.is_big());
}

}  // namespace
}  // namespace onnx_external
