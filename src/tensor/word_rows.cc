#include "tensor/word_rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "tensor/stream_line.h"

namespace onnx_external {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kWordBytes = sizeof(std::uint32_t);
constexpr std::uint64_t kLineWords = kCacheLineBytes / kWordBytes;
constexpr std::uint64_t kTileColumns = 2 * kCacheLineBytes;  // their codes fill a line of a row
constexpr std::uint32_t kCodeBits = 4;

// Words of 16 bits, because no instruction of SSE2 shifts bytes.
using Codes [[gnu::vector_size(16)]] = std::uint16_t;
constexpr std::uint16_t kLowCodes = 0x0F0F;
constexpr std::uint16_t kHighCodes = 0xF0F0;

// A line for each pair of columns, or for each row of codes.
struct alignas(kCacheLineBytes) Lines {
  std::array<std::byte, kCacheLineBytes * kCacheLineBytes> bytes;
  [[nodiscard]] std::byte* line(std::size_t i) { return bytes.data() + i * kCacheLineBytes; }
};

// Joins the low and the high codes of the bytes in two columns of a line of words.
[[gnu::always_inline]] inline void join_codes(const std::byte* even, const std::byte* odd,
                                              std::byte* low, std::byte* high) {
  for (std::size_t at = 0; at < kCacheLineBytes; at += sizeof(Codes)) {
    Codes first;
    Codes second;
    std::memcpy(&first, even + at, sizeof(first));
    std::memcpy(&second, odd + at, sizeof(second));
    const Codes lows = (first & kLowCodes) | ((second & kLowCodes) << kCodeBits);
    const Codes highs = ((first >> kCodeBits) & kLowCodes) | (second & kHighCodes);
    std::memcpy(low + at, &lows, sizeof(lows));
    std::memcpy(high + at, &highs, sizeof(highs));
  }
}

// At most 16 rows of words by kTileColumns columns.
struct Tile {
  std::uint64_t row = 0;
  std::uint64_t rows = 0;
  std::uint64_t column = 0;
  std::uint64_t columns = 0;
};

void join_columns(const Plane& plane, const Tile& tile, Lines& low, Lines& high) {
  const std::byte* from = plane.from + tile.row * kWordBytes + tile.column * plane.column_step;
  const std::size_t bytes = static_cast<std::size_t>(tile.rows * kWordBytes);
  for (std::size_t pair = 0; pair < tile.columns / 2; ++pair, from += 2 * plane.column_step) {
    if (bytes == kCacheLineBytes) {
      join_codes(from, from + plane.column_step, low.line(pair), high.line(pair));
    } else {
      std::array<std::byte, 2 * kCacheLineBytes> both{};
      std::memcpy(both.data(), from, bytes);
      std::memcpy(both.data() + kCacheLineBytes, from + plane.column_step, bytes);
      join_codes(both.data(), both.data() + kCacheLineBytes, low.line(pair), high.line(pair));
    }
  }
}

class WordPacker {
 public:
  WordPacker(const Plane& plane, const WordRows& rows, std::uint64_t row_bytes, Stores stores)
      : plane_(plane) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      places_[rows[row] / kCodeBits] = row * row_bytes;
    }
    const std::uint64_t all =
        reinterpret_cast<std::uintptr_t>(plane.to) | plane.out_step | row_bytes;
    stores_ = all % kCacheLineBytes == 0 ? stores : Stores::kCached;
  }

  // Makes the lines of all rows of codes in the L1 cache, and then writes each of them at once.
  void pack(const Tile& tile) {
    join_columns(plane_, tile, halves_[0], halves_[1]);
    for (std::size_t half = 0; half < halves_.size(); ++half) {
      Lines lines;
      copy_plane({kCacheLineBytes, kCacheLineBytes, halves_[half].line(0), 1, kCacheLineBytes,
                  lines.line(0), kCacheLineBytes},
                 1, Stores::kCached);
      for (std::size_t byte = 0; byte < tile.rows * kWordBytes; ++byte) {
        std::byte* const to = plane_.to + (tile.row + byte / kWordBytes) * plane_.out_step +
                              places_[byte % kWordBytes * 2 + half] + tile.column / 2;
        write(lines.line(byte), to, static_cast<std::size_t>(tile.columns / 2));
      }
    }
  }

 private:
  void write(const std::byte* line, std::byte* to, std::size_t bytes) const {
    if (bytes == kCacheLineBytes && stores_ == Stores::kStreamed) {
      stream_line(line, to);
    } else {
      std::memcpy(to, line, bytes);
    }
  }

  const Plane& plane_;
  Stores stores_ = Stores::kCached;
  std::array<std::uint64_t, 8> places_{};  // of the row of each code of a word
  std::array<Lines, 2> halves_{};          // the low and the high codes of bytes
};

}  // namespace

void pack_word_rows(const Plane& plane, const WordRows& rows, std::uint64_t row_bytes,
                    Stores stores) {
  WordPacker packer(plane, rows, row_bytes, stores);
  for (std::uint64_t row = 0; row < plane.rows; row += kLineWords) {
    for (std::uint64_t column = 0; column < plane.columns; column += kTileColumns) {
      packer.pack({row, std::min(kLineWords, plane.rows - row), column,
                   std::min(kTileColumns, plane.columns - column)});
    }
  }
}

}  // namespace onnx_external
