#include "base/file.h"

#include <sys/stat.h>

#include <array>
#include <limits>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

TEST(SourceFile, ReadsARange) {
  const TempDir dir;
  auto file = SourceFile::open(dir.write("a", "0123456789"));
  ASSERT_THAT(file, IsOk());
  std::string part(4, ' ');
  ASSERT_THAT((*file)->read(3, std::as_writable_bytes(std::span(part))), IsOk());
  EXPECT_EQ(part, "3456");
}

TEST(SourceFile, RefusesARangePastItsEndInAnyForm) {
  const TempDir dir;
  auto file = SourceFile::open(dir.write("a", "0123456789"));
  std::array<std::byte, 4> out{};
  EXPECT_THAT((*file)->read(7, out), FailsWith(ErrorCode::kCorrupt, "byte 7"));
  EXPECT_THAT((*file)->read(~std::uint64_t{0} - 1, out), FailsWith(ErrorCode::kCorrupt, "byte"));
}

TEST(SourceFile, RefusesAFolderAndAFifoWithoutWaiting) {
  const TempDir dir;
  EXPECT_THAT(SourceFile::open(dir.path()), FailsWith(ErrorCode::kInvalidArgument, "a folder"));
  const auto fifo = dir.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(SourceFile::open(fifo), FailsWith(ErrorCode::kInvalidArgument, "not a regular"));
}

TEST(SourceFile, SaysWhichFileIsMissing) {
  EXPECT_THAT(SourceFile::open("/nonexistent/x.pt"),
              FailsWith(ErrorCode::kNotFound, "/nonexistent/x.pt: cannot open"));
}

TEST(SourceFile, NoticesThatItsFileWasCut) {
  const TempDir dir;
  const auto path = dir.write("a", "0123456789");
  auto file = SourceFile::open(path);
  std::filesystem::resize_file(path, 5);
  EXPECT_THAT((*file)->check_unchanged(), FailsWith(ErrorCode::kCorrupt, "was changed"));
  std::array<std::byte, 8> out{};
  EXPECT_THAT((*file)->read(0, out), FailsWith(ErrorCode::kCorrupt, "the file ends here"));
}

TEST(SourceFile, GivesASliceAsAFileOfItsOwn) {
  const TempDir dir;
  const auto path = dir.write("a", "0123456789");
  const auto whole = SourceFile::open(path);
  const auto slice = SourceFile::slice(*whole, 3, 4);
  ASSERT_THAT(slice, IsOk());
  EXPECT_EQ((*slice)->size(), 4U);
  EXPECT_EQ(read_file(**slice, 10).value(), "3456");
  EXPECT_EQ(read_file(**SourceFile::slice(*slice, 1, 2), 10).value(), "45");
  std::array<std::byte, 2> out{};
  EXPECT_THAT((*slice)->read(3, out), FailsWith(ErrorCode::kCorrupt, "slice at byte 3: byte 3"));
  EXPECT_TRUE((*slice)->same_file(**whole));
  EXPECT_THAT((*slice)->check_unchanged(), IsOk());
  std::filesystem::resize_file(path, 5);
  EXPECT_THAT((*slice)->check_unchanged(), FailsWith(ErrorCode::kCorrupt, "was changed"));
}

TEST(SourceFile, RefusesASliceThatReachesOut) {
  const TempDir dir;
  const auto whole = SourceFile::open(dir.write("a", "0123456789"));
  constexpr std::uint64_t kFar = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(SourceFile::slice(*whole, 7, 4), FailsWith(ErrorCode::kCorrupt, "the file has 10"));
  EXPECT_THAT(SourceFile::slice(*whole, 11, 0), FailsWith(ErrorCode::kCorrupt, "the file has 10"));
  EXPECT_THAT(SourceFile::slice(*whole, 7, kFar), FailsWith(ErrorCode::kCorrupt, "has 10"));
}

TEST(ReadFile, RejectsAFileAboveItsLimit) {
  const TempDir dir;
  auto file = SourceFile::open(dir.write("a", "0123456789"));
  EXPECT_EQ(read_file(**file, 10).value(), "0123456789");
  EXPECT_THAT(read_file(**file, 9), FailsWith(ErrorCode::kUnsupported, "limit of 9"));
}

}  // namespace
}  // namespace onnx_external
