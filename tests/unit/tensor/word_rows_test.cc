#include "tensor/word_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/io_buffer.h"
#include "tensor/strided_gather.h"

namespace onnx_external {
namespace {

constexpr WordRows kAwqRows{0, 16, 4, 20, 8, 24, 12, 28};  // as AWQ has them

// StoredWords whose columns are `pitch` words apart.
struct StoredWords {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t pitch = 0;
  std::vector<std::uint32_t> words = {};

  StoredWords(std::uint64_t rows_of_words, std::uint64_t all_columns, std::uint64_t words_apart)
      : rows(rows_of_words),
        columns(all_columns),
        pitch(words_apart),
        words((columns - 1) * pitch + rows) {
    std::mt19937 random(7);
    std::generate(words.begin(), words.end(), std::ref(random));
  }
};

std::vector<std::byte> codes_of(const StoredWords& from, const WordRows& rows) {
  std::vector<std::byte> out;
  for (std::uint64_t line = 0; line < from.rows; ++line) {
    for (const std::uint32_t shift : rows) {
      for (std::uint64_t column = 0; column < from.columns; column += 2) {
        const std::uint32_t low = from.words[column * from.pitch + line] >> shift & 15U;
        const std::uint32_t high = from.words[(column + 1) * from.pitch + line] >> shift & 15U;
        out.push_back(static_cast<std::byte>(low | high << 4));
      }
    }
  }
  return out;
}

std::vector<std::byte> gathered(const StoredWords& from, const WordRows& rows,
                                std::uint64_t shift) {
  const std::uint64_t bytes = from.rows * from.columns * 4;
  IoBuffer out;
  IoBuffer scratch;
  std::byte* const to = out.first(bytes + shift).data() + shift;
  const auto source = std::as_bytes(std::span(from.words));
  const Status status =
      gather_word_rows({4, {from.rows, from.columns}, {4, from.pitch * 4}}, rows, to,
                       scratch.first(kWordRowsScratchBytes).data(),
                       [&](std::uint64_t offset, std::span<std::byte> chunk) -> Status {
                         EXPECT_LE(offset + chunk.size(), source.size());
                         std::memcpy(chunk.data(), source.data() + offset, chunk.size());
                         return {};
                       });
  EXPECT_TRUE(status);
  return {to, to + bytes};
}

TEST(GatherWordRows, GivesTheCodesOfEachRow) {
  const std::vector<StoredWords> all{
      {1, 2, 1},          // a single pair
      {1, 70, 3},         // a row of words, which is no whole line
      {16, 128, 16},      // one whole tile
      {17, 130, 24},      // parts of tiles
      {150, 262, 150},    // columns without gaps
      {512, 1024, 1792},  // gaps that are read, and output past the caches
      {256, 2048, 8192},  // gaps that are not read
      {40000, 6, 40000},  // few long columns
      {3, 5000, 3500},    // many short ones, of which a few fit into the scratch with their gaps
  };
  for (const StoredWords& words : all) {
    for (const std::uint64_t shift : {std::uint64_t{0}, std::uint64_t{8}}) {
      EXPECT_EQ(gathered(words, kAwqRows, shift), codes_of(words, kAwqRows))
          << words.rows << " x " << words.columns << ", " << words.pitch << " words apart, shift "
          << shift;
    }
  }
}

TEST(GatherWordRows, TakesTheRowsOfAWordInAnyOrder) {
  const StoredWords words(20, 140, 31);
  for (const WordRows& rows :
       {WordRows{0, 4, 8, 12, 16, 20, 24, 28}, WordRows{28, 0, 24, 4, 20, 8, 16, 12}}) {
    EXPECT_EQ(gathered(words, rows, 0), codes_of(words, rows));
  }
}

}  // namespace
}  // namespace onnx_external
