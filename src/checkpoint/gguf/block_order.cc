#include "checkpoint/gguf/block_order.h"

#include <algorithm>
#include <array>
#include <vector>

#include "checkpoint/gguf/unpack_blocks.h"

namespace onnx_external {
namespace {

// The numbers in a block: `count` numbers of `bytes` bytes, `step` bytes apart.
struct BlockNumbers {
  std::size_t first = 0;
  std::size_t bytes = 2;
  std::size_t count = 1;
  std::size_t step = 2;
};

struct NumbersOfType {
  std::string_view type;
  bool has_scale = true;  // the first number is the float16 scale of the block
  std::array<BlockNumbers, 2> numbers = {};
};

constexpr BlockNumbers kNone = {0, 2, 0, 2};

// Blocks of other types consist of single bytes.
constexpr std::array kNumbers = {
    NumbersOfType{"Q4_0", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"Q4_1", true, {BlockNumbers{0, 2, 2}, kNone}},
    NumbersOfType{"Q5_0", true, {BlockNumbers{0}, {2, 4}}},
    NumbersOfType{"Q5_1", true, {BlockNumbers{0, 2, 2}, {4, 4}}},
    NumbersOfType{"Q8_0", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"Q2_K", true, {BlockNumbers{80, 2, 2}, kNone}},
    NumbersOfType{"Q3_K", true, {BlockNumbers{108}, kNone}},
    NumbersOfType{"Q4_K", true, {BlockNumbers{0, 2, 2}, kNone}},
    NumbersOfType{"Q5_K", true, {BlockNumbers{0, 2, 2}, kNone}},
    NumbersOfType{"Q6_K", true, {BlockNumbers{208}, kNone}},
    NumbersOfType{"IQ2_XXS", true, {BlockNumbers{0}, {6, 4, 8, 8}}},
    NumbersOfType{"IQ2_XS", true, {BlockNumbers{0, 2, 33}, kNone}},
    NumbersOfType{"IQ3_XXS", true, {BlockNumbers{0}, {66, 4, 8, 4}}},
    NumbersOfType{"IQ1_S", true, {BlockNumbers{0}, {34, 2, 8}}},
    NumbersOfType{"IQ4_NL", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"IQ3_S", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"IQ2_S", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"IQ4_XS", true, {BlockNumbers{0, 2, 2}, kNone}},
    NumbersOfType{"IQ1_M", false, {BlockNumbers{48, 2, 4}, kNone}},
    NumbersOfType{"TQ1_0", true, {BlockNumbers{52}, kNone}},
    NumbersOfType{"TQ2_0", true, {BlockNumbers{64}, kNone}},
    NumbersOfType{"Q1_0", true, {BlockNumbers{0}, kNone}},
    NumbersOfType{"Q2_0", true, {BlockNumbers{0}, kNone}},
};

const NumbersOfType* numbers_of(const BlockType& type) {
  const auto* const found =
      std::find_if(kNumbers.begin(), kNumbers.end(),
                   [&](const NumbersOfType& each) { return each.type == type.name; });
  return found == kNumbers.end() ? nullptr : &*found;
}

// The distances of exponents of float16 from their median, summed.
std::uint64_t spread_of(std::vector<int> exponents) {
  const auto middle = exponents.begin() + static_cast<std::ptrdiff_t>(exponents.size() / 2);
  std::nth_element(exponents.begin(), middle, exponents.end());
  std::uint64_t sum = 0;
  for (const int exponent : exponents) {
    sum += static_cast<std::uint64_t>(std::abs(exponent - *middle));
  }
  return sum;
}

}  // namespace

void swap_numbers(const BlockType& type, std::span<std::byte> blocks) {
  const NumbersOfType* const found = numbers_of(type);
  for (std::size_t block = 0; found != nullptr && block < blocks.size(); block += type.bytes) {
    for (const BlockNumbers& numbers : found->numbers) {
      for (std::size_t i = 0; i < numbers.count; ++i) {
        const auto number = blocks.subspan(block + numbers.first + i * numbers.step, numbers.bytes);
        std::reverse(number.begin(), number.end());
      }
    }
  }
}

void BlockOrder::add(const BlockType& type, std::span<const std::byte> blocks) {
  constexpr int kExponentBits = 31;
  const NumbersOfType* const found = numbers_of(type);
  if (found == nullptr || !found->has_scale) {
    return;
  }
  std::array<std::vector<int>, 2> exponents;
  for (std::size_t block = 0; block < blocks.size(); block += type.bytes) {
    const auto* const at = reinterpret_cast<const std::uint8_t*>(blocks.data()) + block;
    const auto scale = block_number<std::uint16_t>(at + found->numbers[0].first);
    if (scale != 0) {
      exponents[0].push_back((scale >> 10) & kExponentBits);
      exponents[1].push_back((scale >> 2) & kExponentBits);  // of the upper byte, if reversed
    }
  }
  if (!exponents[0].empty()) {
    count_ += exponents[0].size();
    spread_[0] += spread_of(std::move(exponents[0]));
    spread_[1] += spread_of(std::move(exponents[1]));
  }
}

bool BlockOrder::is_big() const {
  constexpr std::uint64_t kClearly = 2;  // powers of two: random exponents are about 8 apart
  return spread_[1] <= spread_[0] + kClearly * count_;
}

}  // namespace onnx_external
