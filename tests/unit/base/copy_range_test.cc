#include "base/copy_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/pattern.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

class CopiedRange : public testing::Test {
 protected:
  OutputFile target() { return OutputFile::create(*folder_, "target").value(); }
  std::shared_ptr<const SourceFile> source(const std::string& content) {
    return SourceFile::open(dir_.write("source", content)).value();
  }
  std::string copied() const { return read_text(dir_.path() / "target"); }

  TempDir dir_;
  Result<Directory> folder_ = Directory::open(dir_.path());
  RangeCopier copier_;
};

TEST_F(CopiedRange, CopiesAnyRangeToAnyOffset) {
  const std::string content = pattern(3'000'000);
  const auto from = source(content);
  const OutputFile to = target();
  std::uint64_t reported = 0;
  const StepFn step = [&](std::uint64_t bytes) { return (reported += bytes) > 0; };
  ASSERT_THAT(copier_.copy({*from, 1'234'567, 1'700'001, to, 77, step}), IsOk());
  ASSERT_THAT(copier_.copy({*from, 5, 77, to, 0, step}), IsOk());
  EXPECT_EQ(copied(), content.substr(5, 77) + content.substr(1'234'567, 1'700'001));
  EXPECT_EQ(reported, 1'700'078U);
}

TEST_F(CopiedRange, TheFileSystemMovesTheSameBytes) {
  const std::string content = pattern(40'000'000);
  const auto from = source(content);
  const OutputFile to = target();
  std::uint64_t reported = 0;
  const StepFn step = [&](std::uint64_t bytes) { return (reported += bytes) > 0; };
  RangeCopier copier(Mover::kFileSystem);
  ASSERT_THAT(copier.copy({*from, 4096, 35'000'001, to, 8192, step}), IsOk());
  EXPECT_EQ(copied(), std::string(8192, '\0') + content.substr(4096, 35'000'001));
  EXPECT_EQ(reported, 35'000'001U);
}

TEST_F(CopiedRange, CopiesItselfWhereTheFileSystemDoesNotMoveBytes) {
  // Between file systems it never does: EXDEV.
  const int fd = ::memfd_create("source", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string content = pattern(700'000);
  ASSERT_EQ(::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  const auto from = SourceFile::open("/proc/self/fd/" + std::to_string(fd)).value();
  const OutputFile to = target();
  RangeCopier copier(Mover::kFileSystem);
  ASSERT_THAT(copier.copy({*from, 0, content.size(), to, 0, {}}), IsOk());
  EXPECT_EQ(copied(), content);
  ::close(fd);
}

TEST_F(CopiedRange, GivesTheCrcOfWhatItCopied) {
  const std::string content = pattern(1'000'003);
  const auto from = source(content);
  const OutputFile to = target();
  Crc32 crc;
  ASSERT_THAT(copier_.copy_with_crc({*from, 0, content.size(), to, 0, {}}, crc), IsOk());
  EXPECT_EQ(copied(), content);
  EXPECT_EQ(crc.value(), crc_of(content));
}

TEST_F(CopiedRange, RefusesARangePastTheEndOfTheSource) {
  const auto from = source("short");
  const OutputFile to = target();
  EXPECT_THAT(copier_.copy({*from, 3, 3, to, 0, {}}), FailsWith(ErrorCode::kCorrupt, "source"));
  EXPECT_THAT(copier_.copy({*from, UINT64_MAX, 2, to, 0, {}}), FailsWith(ErrorCode::kCorrupt, ""));
  EXPECT_EQ(copied(), "");
}

TEST_F(CopiedRange, NamesASourceThatShrinks) {
  const auto from = source(pattern(2'000'000));
  const OutputFile to = target();
  ASSERT_EQ(::truncate((dir_.path() / "source").c_str(), 1'500'000), 0);
  EXPECT_THAT(copier_.copy({*from, 0, 2'000'000, to, 0, {}}),
              FailsWith(ErrorCode::kCorrupt, "source: byte 1500000: the file ends here"));
  Crc32 crc;
  EXPECT_THAT(copier_.copy_with_crc({*from, 0, 2'000'000, to, 0, {}}, crc),
              FailsWith(ErrorCode::kCorrupt, "source"));
}

TEST_F(CopiedRange, StopsWhenTheStepSaysSoAndCanBeUsedAgain) {
  const std::string content = pattern(4'000'000);
  const auto from = source(content);
  const OutputFile to = target();
  int calls = 0;
  const StepFn stop = [&](std::uint64_t) { return ++calls < 2; };
  EXPECT_THAT(copier_.copy({*from, 0, content.size(), to, 0, stop}),
              FailsWith(ErrorCode::kCancelled, ""));
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(copier_.copy({*from, 0, content.size(), to, 0, {}}), IsOk());
  EXPECT_EQ(copied(), content);
}

TEST_F(CopiedRange, FallsBackWhereTheKernelCannotSplice) {
  // Splicing into a file opened for appending is EINVAL.
  const std::string content = pattern(700'000);
  const auto from = source(content);
  const OutputFile to = target();
  ASSERT_EQ(::fcntl(to.fd(), F_SETFL, O_APPEND), 0);
  EXPECT_THAT(copier_.copy({*from, 0, content.size(), to, 0, {}}), IsOk());
  EXPECT_EQ(copied(), content);
}

}  // namespace
}  // namespace onnx_external
