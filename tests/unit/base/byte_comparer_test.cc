#include "base/byte_comparer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Compares two texts and notes what was read of each.
struct Texts {
  std::string found;
  std::string wanted;
  std::uint64_t readable = UINT64_MAX;  // of `found`
  std::string taken = {};
  std::uint64_t wanted_read = 0;

  Result<Comparison> compare(std::uint64_t first, AtDifference policy, std::uint64_t step) {
    const auto read_found = [this](std::uint64_t at, std::span<std::byte> out) -> Status {
      if (at + out.size() > readable) {
        return fail(ErrorCode::kIo, "no such bytes");
      }
      std::memcpy(out.data(), found.data() + at, out.size());
      return {};
    };
    const auto read_wanted =
        [this](std::uint64_t at, std::span<std::byte> room) -> Result<std::span<const std::byte>> {
      wanted_read += room.size();
      return std::as_bytes(std::span(wanted)).subspan(at, room.size());
    };
    const auto take = [this](std::span<const std::byte> piece) -> Status {
      taken += text_of(piece);
      return {};
    };
    return ByteComparer().compare(first, found.size() - first,
                                  {bytes_read_by(read_found), read_wanted, take}, policy, step);
  }
};

TEST(ByteComparer, AcceptsEqualBytesAndPassesThemAllOn) {
  Texts texts{.found = "abcdefg", .wanted = "abcdefg"};
  const auto compared = texts.compare(0, AtDifference::kReadOn, 3);
  ASSERT_THAT(compared, IsOk());
  EXPECT_TRUE(compared->equal());
  EXPECT_EQ(texts.taken, "abcdefg");
}

TEST(ByteComparer, NamesTheFirstDifferenceByItsPlaceInTheSources) {
  Texts texts{.found = "..abXdeY", .wanted = "..abcdef"};
  const auto compared = texts.compare(2, AtDifference::kReadOn, 2);
  ASSERT_THAT(compared, IsOk());
  ASSERT_TRUE(compared->difference);
  EXPECT_EQ(compared->difference->byte, 4U);
  EXPECT_EQ(compared->difference->found, 'X');
  EXPECT_EQ(compared->difference->wanted, 'c');
  EXPECT_EQ(texts.taken, "abXdeY") << "it reads on";
  EXPECT_EQ(texts.wanted_read, 4U) << "but what is wanted is known to differ";
}

TEST(ByteComparer, StopsAtADifferenceAndFindsAnEarlyOneInASmallStep) {
  Texts texts{.found = std::string(100'000, 'a'), .wanted = std::string(100'000, 'a')};
  texts.found[10] = 'b';
  const auto compared = texts.compare(0, AtDifference::kStop, 50'000);
  ASSERT_THAT(compared, IsOk());
  EXPECT_EQ(compared->difference->byte, 10U);
  EXPECT_EQ(texts.wanted_read, 4096U);
}

TEST(ByteComparer, EndsWhereFoundBytesCannotBeRead) {
  Texts texts{.found = "abcdef", .wanted = "abcdef", .readable = 4};
  const auto compared = texts.compare(0, AtDifference::kReadOn, 2);
  ASSERT_THAT(compared, IsOk());
  ASSERT_TRUE(compared->unreadable);
  EXPECT_FALSE(compared->equal());
  EXPECT_EQ(texts.taken, "abcd");
}

TEST(ByteComparer, FailsWhereWantedBytesCannotBeReadOrTheTakerStops) {
  const GiveBytes found = bytes_read_by([](std::uint64_t, std::span<std::byte> out) -> Status {
    std::memset(out.data(), 0, out.size());
    return {};
  });
  const auto no_wanted = [](std::uint64_t,
                            std::span<std::byte>) -> Result<std::span<const std::byte>> {
    return fail(ErrorCode::kCorrupt, "damaged");
  };
  EXPECT_THAT(ByteComparer().compare(0, 8, {found, no_wanted, {}}, AtDifference::kStop),
              FailsWith(ErrorCode::kCorrupt, "damaged"));
  const auto stop = [](std::span<const std::byte>) -> Status {
    return fail(ErrorCode::kCancelled, "cancelled");
  };
  EXPECT_THAT(ByteComparer().compare(0, 8, {found, {}, stop}, AtDifference::kStop),
              FailsWith(ErrorCode::kCancelled, "cancelled"));
}

}  // namespace
}  // namespace onnx_external
