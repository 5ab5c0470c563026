#include "tensor/quantize/rows_of_words.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace onnx_external {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kRows = 8;
constexpr std::size_t kPairBytes = 8;  // two words, whose codes share bytes of the output

// Swaps the odd codes of the first word with the even ones of the second. Then each byte has the
// codes of one row: bytes 0 to 3 those of the even ones, bytes 4 to 7 those of the odd ones.
template <typename Pair>
[[gnu::always_inline]] inline Pair swap_codes(Pair pair) {
  const Pair moved = (pair ^ (pair >> 28)) & 0xF0F0F0F0U;
  return pair ^ moved ^ (moved << 28);
}

std::size_t byte_of(std::uint32_t shift) {
  const std::size_t code = shift / 4;
  return code % 2 * (kRows / 2) + code / 2;
}

// Blocks of 16 pairs are transposed in registers. The functions avoid loops, as those of
// tensor/copy_plane.cc do.
using Bytes [[gnu::vector_size(16)]] = std::uint8_t;
using Pairs [[gnu::vector_size(16)]] = std::uint64_t;
constexpr std::size_t kBlockPairs = 16;
constexpr auto kLanes = std::make_index_sequence<kRows>();
struct Block {
  Bytes lanes[kRows];
};

template <std::size_t... kIndex>
[[gnu::always_inline]] inline Block load(const std::byte* from,
                                         std::index_sequence<kIndex...> /*lanes*/) {
  Pairs pairs[kRows];
  (std::memcpy(&pairs[kIndex], from + kIndex * sizeof(Pairs), sizeof(Pairs)), ...);
  return {{std::bit_cast<Bytes>(swap_codes(pairs[kIndex]))...}};
}

// Interleaves the bytes of the low (kHalf = 0) or high (1) halves of two registers.
template <std::size_t kHalf, std::size_t... kIndex>
[[gnu::always_inline]] inline Bytes interleave(Bytes a, Bytes b,
                                               std::index_sequence<kIndex...> /*bytes*/) {
  return __builtin_shufflevector(
      a, b, (kHalf * sizeof(Bytes) / 2 + kIndex / 2 + kIndex % 2 * sizeof(Bytes))...);
}

template <std::size_t... kIndex>
[[gnu::always_inline]] inline Block mix(const Block& block,
                                        std::index_sequence<kIndex...> /*lanes*/) {
  constexpr auto kBytes = std::make_index_sequence<sizeof(Bytes)>();
  return {{interleave<kIndex % 2>(block.lanes[kIndex / 2], block.lanes[kIndex / 2 + kRows / 2],
                                  kBytes)...}};
}

// Mixing moves the highest bit of a byte's place in the block to the lowest. After four times, the
// three bits of its place in a pair are the number of its lane.
[[gnu::always_inline]] inline Block transpose(const Block& block) {
  return mix(mix(mix(mix(block, kLanes), kLanes), kLanes), kLanes);
}

template <std::size_t... kIndex>
[[gnu::always_inline]] inline void store(const Block& block,
                                         const std::array<std::byte*, kRows>& rows, std::size_t at,
                                         std::index_sequence<kIndex...> /*lanes*/) {
  (std::memcpy(rows[kIndex] + at, &block.lanes[kIndex], sizeof(Bytes)), ...);
}

}  // namespace

void pack_rows_of_words(std::span<const std::byte> words, std::span<const std::uint32_t, 8> shifts,
                        std::span<std::byte> out) {
  const std::size_t pairs = words.size() / kPairBytes;
  std::array<std::byte*, kRows> rows{};  // that gets byte i of each pair
  for (std::size_t row = 0; row < kRows; ++row) {
    rows[byte_of(shifts[row])] = out.data() + row * pairs;
  }
  std::size_t i = 0;
  for (; i + kBlockPairs <= pairs; i += kBlockPairs) {
    store(transpose(load(words.data() + i * kPairBytes, kLanes)), rows, i, kLanes);
  }
  for (; i < pairs; ++i) {
    std::uint64_t pair = 0;
    std::memcpy(&pair, words.data() + i * kPairBytes, kPairBytes);
    pair = swap_codes(pair);
    for (std::size_t byte = 0; byte < kRows; ++byte) {
      rows[byte][i] = static_cast<std::byte>(pair >> (8 * byte));
    }
  }
}

}  // namespace onnx_external
