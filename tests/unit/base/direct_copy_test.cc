#include "base/direct_copy.h"

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

class DirectCopy : public testing::Test {
 protected:
  DirectCopy() { source_ = SourceFile::open(dir_.write("source", content_)).value(); }

  Status copy(const OutputFile& target, std::uint64_t from, std::uint64_t length, std::uint64_t to,
              Crc32& crc, const StepFn& step = {}) {
    return copier_.copy({*source_, from, length, target, to, step}, crc, nullptr);
  }

  TempDir dir_;
  Result<Directory> folder_ = Directory::open(dir_.path());
  const std::string content_ = pattern(5'000'001);
  std::shared_ptr<const SourceFile> source_;
  DirectCopier copier_;
};

TEST_F(DirectCopy, CopiesAnyRangeToAnyOffset) {
  struct Case {
    std::uint64_t from, length, to;
  };
  const std::vector<Case> cases = {
      {0, 5'000'001, 0},  {64, 4'194'304, 0}, {4096, 1'048'576, 4096}, {1'234'567, 3'000'000, 64},
      {1, 262'144, 4095}, {3, 262'143, 0},    {4'737'857, 262'144, 1}, {7, 0, 0}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto [from, length, to] = cases[i];
    const std::string name = "target" + std::to_string(i);
    const OutputFile target = OutputFile::create(*folder_, name).value();
    Crc32 crc;
    std::uint64_t reported = 0;
    const StepFn step = [&](std::uint64_t bytes) { return (reported += bytes) > 0; };
    ASSERT_THAT(copy(target, from, length, to, crc, step), IsOk()) << i;
    const std::string wanted = content_.substr(from, length);
    EXPECT_EQ(read_text(dir_.path() / name), (length == 0 ? "" : std::string(to, '\0')) + wanted)
        << i;
    EXPECT_EQ(crc.value(), crc_of(wanted)) << i;
    EXPECT_EQ(reported, length) << i;
  }
}

TEST_F(DirectCopy, FillsAFileInNeighbouringRanges) {
  const OutputFile target = OutputFile::create(*folder_, "target").value();
  for (std::uint64_t at = 0; at < content_.size(); at += 1'000'003) {
    Crc32 crc;
    const std::uint64_t length = std::min<std::uint64_t>(1'000'003, content_.size() - at);
    ASSERT_THAT(copy(target, at, length, at, crc), IsOk());
  }
  EXPECT_EQ(read_text(dir_.path() / "target"), content_);
}

// How many pages of the file are in the cache.
std::size_t cached_pages(int fd, std::size_t size) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((size + page - 1) / page);
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT_EQ(::mincore(map, size, resident.data()), 0);
  ::munmap(map, size);
  std::size_t count = 0;
  for (const unsigned char each : resident) {
    count += each & 1U;
  }
  return count;
}

TEST_F(DirectCopy, LeavesThePageCacheAlone) {
  const UniqueFd probe(::open((dir_.path() / "source").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (!probe) {
    GTEST_SKIP() << "the file system of " << dir_.path() << " has no O_DIRECT";
  }
  ASSERT_EQ(::fsync(source_->fd()), 0);
  ::posix_fadvise(source_->fd(), 0, 0, POSIX_FADV_DONTNEED);
  const OutputFile target = OutputFile::create(*folder_, "target").value();
  Crc32 crc;
  ASSERT_THAT(copy(target, 64, 4'194'304, 0, crc), IsOk());
  if (cached_pages(source_->fd(), content_.size()) == content_.size() / 4096 + 1) {
    GTEST_SKIP() << "the file system keeps all files in memory";
  }
  EXPECT_LE(cached_pages(source_->fd(), content_.size()), 4U);
  EXPECT_LE(cached_pages(target.fd(), 4'194'304), 4U);
}

TEST_F(DirectCopy, RefusesARangePastTheEndOfTheSource) {
  const OutputFile target = OutputFile::create(*folder_, "target").value();
  Crc32 crc;
  EXPECT_THAT(copy(target, 4'900'000, 200'000, 0, crc), FailsWith(ErrorCode::kCorrupt, "source"));
  EXPECT_THAT(copy(target, UINT64_MAX, 2, 0, crc), FailsWith(ErrorCode::kCorrupt, ""));
}

TEST_F(DirectCopy, NamesASourceThatShrinks) {
  const OutputFile target = OutputFile::create(*folder_, "target").value();
  ASSERT_EQ(::truncate((dir_.path() / "source").c_str(), 1'000'000), 0);
  Crc32 crc;
  EXPECT_THAT(copy(target, 0, 4'000'000, 0, crc), FailsWith(ErrorCode::kCorrupt, "was it cut"));
}

TEST_F(DirectCopy, StopsWhenTheStepSaysSo) {
  const OutputFile target = OutputFile::create(*folder_, "target").value();
  Crc32 crc;
  const StepFn stop = [](std::uint64_t) { return false; };
  EXPECT_THAT(copy(target, 0, 5'000'000, 0, crc, stop), FailsWith(ErrorCode::kCancelled, ""));
}

}  // namespace
}  // namespace onnx_external
