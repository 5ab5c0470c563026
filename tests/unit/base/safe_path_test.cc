#include "base/safe_path.h"

#include <sys/stat.h>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

TEST(RelativeLocation, AcceptsPlainPaths) {
  EXPECT_THAT(check_relative_location("a"), IsOk());
  EXPECT_THAT(check_relative_location("initializers/layer.0.weight"), IsOk());
}

TEST(RelativeLocation, RefusesWhatCouldLeaveItsFolder) {
  for (const char* bad : {"", "/a", "../a", "a/../b", "a/..", "w..bin", "a//b", "a/", "./a", "#x",
                          "C:\\a", "a\\b", "a\nb", "\x7f"}) {
    EXPECT_THAT(check_relative_location(bad), FailsWith(ErrorCode::kInvalidArgument, "")) << bad;
  }
  EXPECT_THAT(check_relative_location(std::string_view("a\0b", 3)),
              FailsWith(ErrorCode::kInvalidArgument, "a\\x00b"));
  EXPECT_THAT(check_relative_location(std::string(256, 'a')),
              FailsWith(ErrorCode::kInvalidArgument, "plain name"));
  EXPECT_THAT(check_relative_location(std::string(5000, 'a')),
              FailsWith(ErrorCode::kInvalidArgument, "4096"));
}

TEST(OpenBeneath, OpensARegularFile) {
  const TempDir dir;
  dir.write("sub/a", "xyz");
  auto file = open_beneath(dir.path(), "sub/a");
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->size(), 3U);
}

TEST(OpenBeneath, RefusesLinksInEveryComponent) {
  const TempDir dir;
  dir.write("sub/a", "xyz");
  std::filesystem::create_symlink("a", dir.path() / "sub/link");
  std::filesystem::create_directory_symlink("sub", dir.path() / "sublink");
  std::filesystem::create_hard_link(dir.path() / "sub/a", dir.path() / "twin");
  EXPECT_THAT(open_beneath(dir.path(), "sub/link"),
              FailsWith(ErrorCode::kInvalidArgument, "symbolic link"));
  EXPECT_THAT(open_beneath(dir.path(), "sublink/a"),
              FailsWith(ErrorCode::kInvalidArgument, "symbolic link"));
  EXPECT_THAT(open_beneath(dir.path(), "twin"),
              FailsWith(ErrorCode::kInvalidArgument, "2 hard links"));
}

TEST(OpenBeneath, RefusesOtherKindsOfFiles) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir.path() / "fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(dir.path() / "folder");
  EXPECT_THAT(open_beneath(dir.path(), "fifo"), FailsWith(ErrorCode::kInvalidArgument, "regular"));
  EXPECT_THAT(open_beneath(dir.path(), "folder"),
              FailsWith(ErrorCode::kInvalidArgument, "a folder"));
  EXPECT_THAT(open_beneath(dir.path(), "missing"), FailsWith(ErrorCode::kNotFound, "missing"));
}

TEST(PlainLocation, NormalizesPathsAndRejectsThoseThatLeaveTheFolder) {
  for (const char* spelled : {"d/w", "./d/w", "d//w", "d/./w", ".//./d///w"}) {
    EXPECT_EQ(plain_location(spelled).value_or(""), "d/w") << spelled;
  }
  for (const char* name : {"w..bin", "#w", "...", "a b"}) {
    EXPECT_EQ(plain_location(name).value_or(""), name);
  }
  for (const char* bad :
       {"", "/d/w", "..", "../w", "d/../w", "d/..", ".", "./", "d/", "d/.", "d\\w", "a\nb"}) {
    EXPECT_THAT(plain_location(bad), FailsWith(ErrorCode::kInvalidArgument, "")) << bad;
  }
}

TEST(OpenDataFile, AcceptsHardLinksThatDiscloseNoPrivateFile) {
  namespace fs = std::filesystem;
  const TempDir dir;
  dir.write("in/w", "12345678");
  fs::create_hard_link(dir.path() / "in/w", dir.path() / "twin");
  const auto folder = Directory::open(dir.path() / "in");
  ASSERT_THAT(folder, IsOk());
  fs::permissions(dir.path() / "in", fs::perms::owner_all | fs::perms::group_read);
  fs::permissions(dir.path() / "in/w", fs::perms::owner_read | fs::perms::group_read);
  EXPECT_THAT(open_data_file(*folder, "./w"), IsOk());
  fs::permissions(dir.path() / "in/w", fs::perms::owner_read);
  EXPECT_THAT(open_data_file(*folder, "w"), FailsWith(ErrorCode::kInvalidArgument, "2 hard links"));
}

}  // namespace
}  // namespace onnx_external
