#include "tensor/missing_data.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/holes.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kKiB = 1 << 10;

// Three matrices of 64 rows of 1 KiB, and a vector of 4 KiB.
constexpr std::uint64_t kMatrix = 64 * kKiB;
constexpr std::uint64_t kAll = 3 * kMatrix + 4 * kKiB;
const std::vector<std::int64_t> kMatrixShape = {64, 256};
const std::vector<std::int64_t> kVectorShape = {1024};

std::vector<StoredRange> ranges() {
  return {{"a", kMatrixShape, 0, kMatrix},
          {"b", kMatrixShape, kMatrix, kMatrix},
          {"c", kMatrixShape, 2 * kMatrix, kMatrix},
          {"d", kVectorShape, 3 * kMatrix, 4 * kKiB}};
}

Result<std::string> check(const std::string& data) {
  const TempDir dir;
  return check_is_not_missing(**SourceFile::open(dir.write("data", data)), ranges());
}

// The note; the error where there is one.
std::string note_of(const Result<std::string>& result) {
  return result ? *result : result.error().message;
}

// Data that becomes zeros from `at` on.
std::string zeros_from(std::uint64_t at) {
  return std::string(at, 'x') + std::string(kAll - at, '\0');
}

TEST(MissingData, IsNotInFullFiles) {
  EXPECT_THAT(note_of(check(std::string(kAll, 'x'))), IsEmpty());
}

TEST(MissingData, BeginsInsideOfARow) {
  EXPECT_THAT(check(zeros_from(2 * kMatrix + 7 * kKiB + 512)),
              FailsWith(ErrorCode::kInvalidArgument, "from within tensor 'c' on, are zeros"));
}

TEST(MissingData, BeginsBetweenRowsWithMatricesBehind) {
  EXPECT_THAT(check(zeros_from(kMatrix + 8 * kKiB)),
              FailsWith(ErrorCode::kInvalidArgument, "from within tensor 'b' on, are zeros"));
}

TEST(MissingData, IsSuspectedInSeveralWholeTensors) {
  EXPECT_THAT(note_of(check(zeros_from(kMatrix))), HasSubstr("its last 3 tensors, from 'b' on"));
  EXPECT_THAT(note_of(check(zeros_from(2 * kMatrix))), HasSubstr("its last 2 tensors"));
}

TEST(MissingData, IsNotAVectorOfZerosOrRowsOfPadding) {
  EXPECT_THAT(note_of(check(zeros_from(3 * kMatrix))), IsEmpty());
  EXPECT_THAT(note_of(check(zeros_from(2 * kMatrix + 8 * kKiB))), IsEmpty());
}

TEST(MissingData, IsNotPaddingBehindARowThatEndsWithAFewZeros) {
  EXPECT_THAT(note_of(check(zeros_from(2 * kMatrix + 8 * kKiB - 16))), IsEmpty());
}

TEST(MissingData, IsNotInColumnsOfZeros) {
  std::string data(64 * 8 * kKiB, 'x');
  for (std::uint64_t row = 0; row < data.size(); row += 8 * kKiB) {
    data.replace(row + 3 * kKiB, 5 * kKiB, 5 * kKiB, '\0');
  }
  const TempDir dir;
  const std::vector<std::int64_t> shape = {64, 2048};
  const auto file = *SourceFile::open(dir.write("data", data));
  EXPECT_THAT(note_of(check_is_not_missing(*file, {{"w", shape, 0, data.size()}})), IsEmpty());
  data.replace(data.size() - 16 * kKiB, 3 * kKiB, 3 * kKiB, 'x');
  data.replace(data.size() - 13 * kKiB, 5 * kKiB, 5 * kKiB, 'x');
  const auto other = *SourceFile::open(dir.write("other", data));
  EXPECT_THAT(check_is_not_missing(*other, {{"w", shape, 0, data.size()}}),
              FailsWith(ErrorCode::kInvalidArgument, "within tensor 'w'"));
}

TEST(MissingData, IsAHoleBetweenWrittenParts) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "sparse";
  const std::string part(kMiB, 'x');
  {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::pwrite(fd.get(), part.data(), kMiB, 0), static_cast<ssize_t>(kMiB));
    ASSERT_EQ(::pwrite(fd.get(), part.data(), kMiB, 3 * kMiB), static_cast<ssize_t>(kMiB));
  }
  const auto file = *SourceFile::open(path);
  if (!next_run(*file, kMiB, 4 * kMiB).is_hole) {
    GTEST_SKIP() << "this file system has no holes";
  }
  const std::vector<std::int64_t> rows = {4096, 250};  // whose ends are not those of blocks
  EXPECT_THAT(check_is_not_missing(*file, {{"w", rows, 96, 4096 * 1000}}),
              FailsWith(ErrorCode::kInvalidArgument, "in tensor 'w', were never written"));
  const std::vector<std::int64_t> blocks = {4, 1 << 18};
  EXPECT_THAT(note_of(check_is_not_missing(*file, {{"w", blocks, 0, 4 * kMiB}})), IsEmpty());
}

}  // namespace
}  // namespace onnx_external
