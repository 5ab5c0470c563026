#include "base/digest.h"

#include <gtest/gtest.h>

#include <string_view>

namespace onnx_external {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32, GivesTheCheckValueOfTheStandard) {
  Crc32 crc;
  crc.update(bytes("1234"));
  crc.update(bytes("56789"));
  EXPECT_EQ(crc.value(), 0xCBF43926U);
}

TEST(Crc32, DoesNotChangeByNoBytes) {
  Crc32 crc(0xCBF43926);
  crc.update({});
  EXPECT_EQ(crc.value(), 0xCBF43926);
}

TEST(Crc32, OfTwoPartsIsThatOfTheWhole) {
  Crc32 a;
  Crc32 b;
  a.update(bytes("1234"));
  b.update(bytes("56789"));
  EXPECT_EQ(crc32_concat(a.value(), b.value(), 5), 0xCBF43926U);
}

TEST(Sha, GivesTheValuesOfTheStandard) {
  Sha sha1(Sha::Kind::kSha1);
  sha1.update(bytes("abc"));
  EXPECT_EQ(sha1.hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
  Sha sha256(Sha::Kind::kSha256);
  sha256.update(bytes("ab"));
  sha256.update(bytes("c"));
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace onnx_external
