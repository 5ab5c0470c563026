#include "base/holes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// 1 MiB of data, a hole of 2, a byte and a short hole, data to 5 MiB, a hole to 8.
class Holes : public testing::Test {
 protected:
  Holes() {
    const auto path = dir_.write("sparse", std::string(kMiB, 'x'));
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(3 * kMiB).write("y", 1);
    file.seekp(3 * kMiB + kMinHoleBytes / 2);
    file << std::string(2 * kMiB - kMinHoleBytes / 2, 'z');
    file.close();
    std::filesystem::resize_file(path, 8 * kMiB);
    file_ = *SourceFile::open(path);
    has_them_ = may_have_holes(*file_);
  }

  std::string runs(std::uint64_t begin, std::uint64_t end) const {
    std::string text;
    while (begin < end) {
      const FileRun run = next_run(*file_, begin, end);
      text += (run.is_hole ? "hole " : "data ") + std::to_string(run.bytes) + " ";
      begin += run.bytes;
    }
    return text;
  }

  TempDir dir_;
  std::shared_ptr<const SourceFile> file_;
  bool has_them_ = false;
};

TEST_F(Holes, AreFoundUnlessTheyAreShort) {
  if (!has_them_) {
    GTEST_SKIP() << "no sparse files here";
  }
  EXPECT_EQ(runs(0, 8 * kMiB), "data 1048576 hole 2097152 data 2097152 hole 3145728 ");
  EXPECT_EQ(runs(kMiB / 2, 2 * kMiB), "data 524288 hole 1048576 ");
  EXPECT_EQ(runs(2 * kMiB, 3 * kMiB - 1), "hole 1048575 ");
  EXPECT_EQ(runs(6 * kMiB, 6 * kMiB + 100), "data 100 ");
}

TEST_F(Holes, EndWhereTheFileEnds) {
  EXPECT_EQ(runs(9 * kMiB, 12 * kMiB), "data 3145728 ");
}

TEST_F(Holes, AreNotInAFullFile) {
  const auto full = *SourceFile::open(dir_.write("full", std::string(kMiB, 'x')));
  EXPECT_FALSE(may_have_holes(*full));
  EXPECT_EQ(next_run(*full, 0, kMiB).bytes, kMiB);
}

// Writes a reserved file of 64 KiB up to `written`. False if the file system reserves nothing, or
// does not tell what is written.
bool reserve(const std::filesystem::path& path, std::size_t written) {
  constexpr off_t kHoleBytes = 64 << 10;
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::string data(written, 'x');
  return fd && ::fallocate(fd.get(), 0, 0, kHoleBytes) == 0 &&
         ::lseek(fd.get(), 0, SEEK_HOLE) == 0 &&
         ::pwrite(fd.get(), data.data(), written, 0) == static_cast<ssize_t>(written);
}

TEST(IsWritten, FailsForTheReservedEndOfABrokenDownload) {
  const TempDir dir;
  for (const std::size_t written : {0U, 4096U, 40'000U}) {
    const std::filesystem::path path = dir.path() / std::to_string(written);
    if (!reserve(path, written)) {
      GTEST_SKIP() << "nothing can be reserved here";
    }
    EXPECT_THAT(check_is_written(**SourceFile::open(path)),
                FailsWith(ErrorCode::kInvalidArgument, "bytes, but they were never written"));
  }
}

TEST(IsWritten, HoldsForFullAndForSparseFiles) {
  const TempDir dir;
  if (reserve(dir.path() / "whole", 64 << 10)) {
    EXPECT_THAT(check_is_written(**SourceFile::open(dir.path() / "whole")), IsOk());
  }
  EXPECT_THAT(check_is_written(**SourceFile::open(dir.write("empty", ""))), IsOk());
  dir.write("sparse", "x");
  std::filesystem::resize_file(dir.path() / "sparse", 1 << 20);
  EXPECT_THAT(check_is_written(**SourceFile::open(dir.path() / "sparse")), IsOk());
}

TEST(SparseCrc32, IncludesTheZeros) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 255U, 65'536U, 1'000'003U}) {
    const std::string zeros(count, '\0');
    Crc32 wanted;
    wanted.update(std::as_bytes(std::span(zeros)));
    EXPECT_EQ(crc32_of_zeros(count), wanted.value()) << count;
    const std::string text = "between";
    SparseCrc32 crc;
    crc.update(std::as_bytes(std::span(text)));
    crc.skip_zeros(count);
    crc.update(std::as_bytes(std::span(text)));
    crc.update(std::as_bytes(std::span(text)));
    const std::string all = text + zeros + text + text;
    Crc32 whole;
    whole.update(std::as_bytes(std::span(all)));
    EXPECT_EQ(crc.value(), whole.value()) << count;
  }
}

}  // namespace
}  // namespace onnx_external
