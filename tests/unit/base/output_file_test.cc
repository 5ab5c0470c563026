#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <span>
#include <string>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(OutputFile, WritesAtExplicitOffsets) {
  TempDir dir;
  const auto folder = Directory::open(dir.path());
  ASSERT_THAT(folder, IsOk());
  auto file = OutputFile::create(*folder, "a");
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->write(3, bytes_of("def")), IsOk());
  EXPECT_THAT(file->write(0, bytes_of("abc")), IsOk());
  file->start_writeback();
  EXPECT_THAT(file->sync(), IsOk());
  EXPECT_THAT(file->close(), IsOk());
  EXPECT_EQ(read_text(dir.path() / "a"), "abcdef");
}

TEST(OutputFile, WritesLongTextsWhole) {
  TempDir dir;
  const auto folder = Directory::open(dir.path());
  ASSERT_THAT(folder, IsOk());
  std::string text;
  for (int line = 0; line < 100'000; ++line) {
    text += std::to_string(line) + '\n';
  }
  auto file = OutputFile::create(*folder, "a");
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->write(5, bytes_of(text)), IsOk());
  EXPECT_THAT(file->close(), IsOk());
  EXPECT_EQ(read_text(dir.path() / "a"), std::string(5, '\0') + text);
}

TEST(OutputFile, RefusesEverythingThatExists) {
  TempDir dir;
  dir.write("file", "old");
  std::filesystem::create_symlink("nowhere", dir.path() / "link");
  ASSERT_EQ(::mkfifo((dir.path() / "fifo").c_str(), 0600), 0);
  const auto folder = Directory::open(dir.path());
  ASSERT_THAT(folder, IsOk());
  for (const char* name : {"file", "link", "fifo"}) {
    EXPECT_THAT(OutputFile::create(*folder, name), FailsWith(ErrorCode::kAlreadyExists, name));
  }
  EXPECT_EQ(read_text(dir.path() / "file"), "old");
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "nowhere"));
}

TEST(OutputFile, ModeFollowsTheUmask) {
  TempDir dir;
  const auto folder = Directory::open(dir.path());
  ASSERT_THAT(folder, IsOk());
  const mode_t before = ::umask(027);
  const auto file = OutputFile::create(*folder, "a");
  ::umask(before);
  ASSERT_THAT(file, IsOk());
  struct stat info {};
  ASSERT_EQ(::fstat(file->fd(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0640U);
  EXPECT_EQ(info.st_nlink, 1U);
}

TEST(OutputFile, PreallocationSetsTheSizeOfLargeFilesOnly) {
  TempDir dir;
  const auto folder = Directory::open(dir.path());
  ASSERT_THAT(folder, IsOk());
  auto small = OutputFile::create(*folder, "small");
  ASSERT_THAT(small, IsOk());
  EXPECT_THAT(small->preallocate(kMinPreallocatedBytes - 1), IsOk());
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "small"), 0U);
  auto large = OutputFile::create(*folder, "large");
  ASSERT_THAT(large, IsOk());
  EXPECT_THAT(large->preallocate(kMinPreallocatedBytes), IsOk());
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "large"), kMinPreallocatedBytes);
}

}  // namespace
}  // namespace onnx_external
