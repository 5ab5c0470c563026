#include "base/inflate.h"

#include <cstdint>
#include <string>

#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

Result<std::string> inflated(const std::string& deflated, std::uint64_t size) {
  const TempDir dir;
  const auto file = SourceFile::open(dir.write("a", "head" + deflated + "tail"));
  return inflate_to_string(**file, {.offset = 4, .stored = deflated.size(), .size = size});
}

// Bytes of which deflate makes about as many.
std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1'664'525 + 1'013'904'223;
    byte = static_cast<char>(state >> 24U);
  }
  return bytes;
}

TEST(Inflate, GivesEveryLengthAroundThoseOfItsBuffers) {
  constexpr std::size_t kBuffer = std::size_t{256} << 10;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kBuffer - 2, kBuffer - 1, kBuffer,
                                 kBuffer + 1, 2 * kBuffer, 2 * kBuffer + 1}) {
    for (const std::string& bytes : {noise(size), std::string(size, 'a')}) {
      const auto given = inflated(raw_deflate(bytes), size);
      ASSERT_THAT(given, IsOk()) << size;
      EXPECT_TRUE(*given == bytes) << size;
    }
  }
}

TEST(Inflate, RejectsALengthOtherThanDeclared) {
  const std::string deflated = raw_deflate(noise(1000));
  for (const std::uint64_t size : {0U, 1U, 999U}) {
    EXPECT_THAT(inflated(deflated, size),
                FailsWith(ErrorCode::kCorrupt, "longer than the declared"));
  }
  EXPECT_THAT(inflated(deflated, 1001), FailsWith(ErrorCode::kCorrupt, "1001 are declared"));
}

TEST(Inflate, RefusesNoBytesAndAStreamThatEndsEarly) {
  EXPECT_THAT(inflated("", 0), FailsWith(ErrorCode::kCorrupt, "damaged deflate stream"));
  const std::string deflated = raw_deflate(noise(1000));
  EXPECT_THAT(inflated(deflated.substr(0, 500), 1000),
              FailsWith(ErrorCode::kCorrupt, "damaged deflate stream"));
}

}  // namespace
}  // namespace onnx_external
