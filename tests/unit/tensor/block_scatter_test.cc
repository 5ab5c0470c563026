#include "tensor/block_scatter.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

ReadSource source_of(std::string bytes) {
  return [bytes = std::move(bytes)](std::uint64_t offset, std::span<std::byte> out) -> Status {
    EXPECT_LE(offset + out.size(), bytes.size());
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return {};
  };
}

std::string read(const BlockScatter& scatter, std::uint64_t first, std::size_t size) {
  std::string out(size, '?');
  EXPECT_THAT(scatter.read(first, std::as_writable_bytes(std::span(out))), IsOk());
  return out;
}

TEST(BlockScatter, PutsBlocksInTheirPlacesAndZerosElsewhere) {
  const BlockScatter scatter({{1, 0}, {3, 2}, {4, 1}}, 2, DType::kUInt8, source_of("aabbcc"));
  EXPECT_EQ(read(scatter, 0, 12), std::string("\0\0aa\0\0ccbb\0\0", 12));
}

TEST(BlockScatter, ReadsAnyRangeOfBytesAsItReadsTheWhole) {
  std::string values;
  std::vector<PlacedBlock> placed;
  for (std::uint64_t i = 0; i < 20; ++i) {
    values += std::string(8, static_cast<char>('a' + i));
    placed.push_back({.block = i * 7 % 31, .value = i});
  }
  std::sort(placed.begin(), placed.end());
  const BlockScatter scatter(placed, 8, DType::kInt32, source_of(values));
  const std::string whole = read(scatter, 0, 31 * 8);
  for (std::size_t first = 0; first < whole.size(); first += 5) {
    for (const std::size_t size : {1U, 3U, 4U, 17U, 100U}) {
      const std::string part = whole.substr(first, size);
      ASSERT_EQ(read(scatter, first, part.size()), part) << first << " " << size;
    }
  }
}

TEST(BlockScatter, ReadsBlocksLargerThanAPiece) {
  std::string values;
  for (std::uint64_t i = 0; i < BlockScatter::kChunkBytes + 1000; ++i) {
    values += static_cast<char>('a' + i % 23);
  }
  const BlockScatter scatter({{2, 0}}, values.size(), DType::kUInt8, source_of(values));
  EXPECT_TRUE(read(scatter, 2 * values.size(), values.size()) == values);
  EXPECT_EQ(read(scatter, 3 * values.size() - 9, 12),
            values.substr(values.size() - 9) + std::string(3, '\0'));
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(BlockScatter, AddsBlocksOfOnePlaceInTheOrderOfTheirValues) {
  // In floats the order shows: (1e8 + -1e8) + 1 = 1, but 1e8 + (-1e8 + 1) = 0.
  const BlockScatter scatter({{0, 0}, {0, 1}, {0, 2}}, 4, DType::kFloat32,
                             source_of(bytes_of<float>({1e8F, -1e8F, 1.0F})));
  EXPECT_EQ(read(scatter, 0, 8), bytes_of<float>({1.0F, 0.0F}));
}

TEST(BlockScatter, WrapsIntegersAroundAndOrsBools) {
  const BlockScatter bytes({{0, 0}, {0, 1}}, 1, DType::kInt8, source_of("\x64\x64"));
  EXPECT_EQ(read(bytes, 0, 1), "\xc8");
  const BlockScatter bools({{0, 0}, {0, 1}}, 1, DType::kBool, source_of("\x01\x01"));
  EXPECT_EQ(read(bools, 0, 1), "\x01");
}

TEST(BlockScatter, DoesNotAddTypesThatTorchRounds) {
  EXPECT_FALSE(can_add(DType::kFloat16));
  EXPECT_FALSE(can_add(DType::kBFloat16));
  EXPECT_FALSE(can_add(DType::kFloat8E5M2));
  EXPECT_TRUE(can_add(DType::kComplex64));
  EXPECT_TRUE(can_add(DType::kBool));
}

TEST(BlockScatter, GivesTheErrorOfItsSource) {
  const BlockScatter scatter({{0, 0}}, 4, DType::kInt32, [](std::uint64_t, std::span<std::byte>) {
    return Status(fail(ErrorCode::kIo, "gone"));
  });
  std::string out(4, '?');
  EXPECT_THAT(scatter.read(0, std::as_writable_bytes(std::span(out))),
              FailsWith(ErrorCode::kIo, "gone"));
}

}  // namespace
}  // namespace onnx_external
