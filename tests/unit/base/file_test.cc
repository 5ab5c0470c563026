#include "base/file.h"

#include <sys/stat.h>

#include <array>

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

TEST(ReadFile, HoldsItsLimit) {
  const TempDir dir;
  auto file = SourceFile::open(dir.write("a", "0123456789"));
  EXPECT_EQ(read_file(**file, 10).value(), "0123456789");
  EXPECT_THAT(read_file(**file, 9), FailsWith(ErrorCode::kUnsupported, "limit of 9"));
}

}  // namespace
}  // namespace onnx_external
