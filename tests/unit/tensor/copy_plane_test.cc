#include "tensor/copy_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace onnx_external {
namespace {

constexpr std::uint64_t kRows = 150;  // whole tiles, and a part of one
constexpr std::uint64_t kColumns = 261;
constexpr std::byte kUntouched{0xAB};

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// Returns the transpose of kColumns lines of kRows elements, with `out_step` bytes from a row to
// the next.
std::vector<std::byte> transposed(const std::vector<std::byte>& source, std::uint64_t unit,
                                  std::uint64_t out_step) {
  std::vector<std::byte> out(kRows * out_step, kUntouched);
  for (std::uint64_t row = 0; row < kRows; ++row) {
    for (std::uint64_t column = 0; column < kColumns; ++column) {
      std::memcpy(out.data() + row * out_step + column * unit,
                  source.data() + (column * kRows + row) * unit, unit);
    }
  }
  return out;
}

// Copies to a place that lies `shift` bytes behind the start of a cache line.
std::vector<std::byte> copied(const std::vector<std::byte>& source, std::uint32_t unit,
                              std::uint64_t out_step, std::uint64_t shift, Stores stores) {
  std::vector<std::byte> room(kRows * out_step + 2 * kCacheLineBytes, kUntouched);
  void* line = room.data();
  std::size_t left = room.size();
  std::align(kCacheLineBytes, kRows * out_step, line, left);
  auto* const to = static_cast<std::byte*>(line) + shift;
  copy_plane({kRows, kColumns, source.data(), unit, kRows * unit, to, out_step}, unit, stores);
  finish_streams();
  return {to, to + kRows * out_step};
}

TEST(CopyPlane, TransposesByCachedAndByStreamedStores) {
  for (const std::uint32_t unit : {1U, 2U, 4U, 8U, 16U}) {
    const auto source = random_bytes(kRows * kColumns * unit);
    const std::uint64_t aligned =
        (kColumns * unit + kCacheLineBytes) / kCacheLineBytes * kCacheLineBytes;
    for (const std::uint64_t out_step : {aligned, kColumns * unit}) {
      const auto expected = transposed(source, unit, out_step);
      for (const std::uint64_t shift : {std::uint64_t{0}, std::uint64_t{16}}) {
        for (const Stores stores : {Stores::kCached, Stores::kStreamed}) {
          EXPECT_EQ(copied(source, unit, out_step, shift, stores), expected)
              << unit << " bytes, step " << out_step << ", shift " << shift << ", stores "
              << static_cast<int>(stores);
        }
      }
    }
  }
}

TEST(CopyPlane, CopiesRowsWhoseElementsAreAdjacent) {
  const auto source = random_bytes(kRows * kColumns * 4);
  std::vector<std::byte> out(source.size());
  copy_plane({kRows, kColumns, source.data(), kColumns * 4, 4, out.data(), kColumns * 4}, 4,
             Stores::kStreamed);
  EXPECT_EQ(out, source);
}

}  // namespace
}  // namespace onnx_external
