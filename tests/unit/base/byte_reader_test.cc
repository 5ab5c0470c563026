#include "base/byte_reader.h"

#include <array>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

constexpr std::array<std::byte, 6> kBytes{std::byte{1}, std::byte{2}, std::byte{3},
                                          std::byte{4}, std::byte{5}, std::byte{6}};

TEST(ByteReader, ReadsLittleEndian) {
  ByteReader reader(kBytes);
  EXPECT_EQ(reader.read<std::uint16_t>("a").value(), 0x0201);
  EXPECT_EQ(reader.read<std::uint32_t>("b").value(), 0x06050403U);
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ByteReader, NamesTheFieldAndThePlaceWhenBytesRunOut) {
  ByteReader reader(kBytes, 100);
  reader.seek(4);
  EXPECT_THAT(reader.read<std::uint32_t>("entry count"),
              FailsWith(ErrorCode::kCorrupt, "byte 104: cannot read entry count"));
  EXPECT_EQ(reader.position(), 4U);
}

TEST(ByteReader, RefusesALengthOfAlmost2To64) {
  ByteReader reader(kBytes);
  reader.seek(1);
  EXPECT_THAT(reader.take(~std::uint64_t{0}, "name"), FailsWith(ErrorCode::kCorrupt, "name"));
}

}  // namespace
}  // namespace onnx_external
