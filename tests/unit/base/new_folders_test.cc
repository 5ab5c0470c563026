#include "base/new_folders.h"

#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

TEST(NewFolders, MakesWhatIsMissingAndRemovesItAgain) {
  const TempDir temp;
  fs::create_directory(temp.path() / "old");
  {
    const auto made = NewFolders::make(temp.path() / "old" / "a" / "b");
    ASSERT_THAT(made, IsOk());
    EXPECT_EQ(made->made(),
              (std::vector<fs::path>{temp.path() / "old/a", temp.path() / "old/a/b"}));
    EXPECT_TRUE(fs::is_directory(temp.path() / "old/a/b"));
  }
  EXPECT_TRUE(fs::is_empty(temp.path() / "old"));
}

TEST(NewFolders, KeepsThemIfAsked) {
  const TempDir temp;
  {
    auto made = NewFolders::make(temp.path() / "a");
    ASSERT_THAT(made, IsOk());
    EXPECT_THAT(made->sync(), IsOk());
    made->keep();
  }
  EXPECT_TRUE(fs::is_directory(temp.path() / "a"));
}

TEST(NewFolders, LeavesAFolderThatSomeoneUses) {
  const TempDir temp;
  {
    const auto made = NewFolders::make(temp.path() / "a" / "b");
    ASSERT_THAT(made, IsOk());
    temp.write("a/file", "");
  }
  EXPECT_TRUE(fs::exists(temp.path() / "a/file"));
  EXPECT_FALSE(fs::exists(temp.path() / "a/b"));
}

TEST(NewFolders, LeavesNothingAfterAnError) {
  const TempDir temp;
  EXPECT_THAT(NewFolders::make(temp.path() / "a" / std::string(300, 'x')),
              FailsWith(ErrorCode::kIo, "cannot create the folder"));
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

TEST(NewFolders, KnowsTheNearestFolderThatExists) {
  const TempDir temp;
  EXPECT_EQ(nearest_existing_folder(temp.path() / "a" / "b"), temp.path());
  EXPECT_EQ(nearest_existing_folder("no-such-folder/at-all"), ".");
}

TEST(NewFolders, NamesADanglingLinkAndAFileInTheWay) {
  const TempDir temp;
  fs::create_symlink("nowhere", temp.path() / "link");
  temp.write("file", "");
  for (const char* path : {"link", "link/below"}) {
    EXPECT_THAT(
        NewFolders::make(temp.path() / path),
        FailsWith(
            ErrorCode::kNotFound,
            "link: is a symbolic link to 'nowhere', which does not exist; create the target"));
    EXPECT_FALSE(check_no_dangling_link(temp.path() / path));
  }
  EXPECT_THAT(NewFolders::make(temp.path() / "file"),
              FailsWith(ErrorCode::kAlreadyExists, "file: is not a folder"));
  fs::create_directory(temp.path() / "nowhere");
  EXPECT_THAT(check_no_dangling_link(temp.path() / "link"), IsOk());
  EXPECT_THAT(NewFolders::make(temp.path() / "link" / "below"), IsOk());
}

}  // namespace
}  // namespace onnx_external
