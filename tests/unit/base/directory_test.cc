#include "base/directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

Directory open_or_die(const fs::path& path) {
  return Directory::open(path).value();
}

TEST(Directory, ListsItsEntriesSorted) {
  TempDir dir;
  dir.write("b", "");
  dir.write("a", "");
  const Directory folder = open_or_die(dir.path());
  const auto names = folder.entries();
  ASSERT_THAT(names, IsOk());
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(folder.entries()->size(), 2U);  // a second listing starts anew
}

TEST(Directory, ReportsTheKindOfAnEntryWithoutFollowingLinks) {
  TempDir dir;
  dir.write("file", "");
  fs::create_directory(dir.path() / "folder");
  fs::create_directory_symlink("folder", dir.path() / "link");
  const Directory folder = open_or_die(dir.path());
  EXPECT_EQ(*folder.kind_of("file"), EntryKind::kFile);
  EXPECT_EQ(*folder.kind_of("folder"), EntryKind::kFolder);
  EXPECT_EQ(*folder.kind_of("link"), EntryKind::kOther);
  EXPECT_EQ(*folder.kind_of("none"), std::nullopt);
  EXPECT_FALSE(folder.open_folder("link"));
}

TEST(Directory, RemovesATreeButNotWhatItsLinksPointTo) {
  TempDir dir;
  dir.write("kept/file", "kept");
  dir.write("tree/a/b/file", "x");
  fs::create_directory_symlink(dir.path() / "kept", dir.path() / "tree/a/link");
  const Directory folder = open_or_die(dir.path());
  EXPECT_THAT(folder.remove_tree("tree"), IsOk());
  EXPECT_FALSE(fs::exists(dir.path() / "tree"));
  EXPECT_EQ(read_text(dir.path() / "kept/file"), "kept");
  EXPECT_THAT(folder.remove_tree("tree"), IsOk());
}

TEST(Directory, RefusesToRemoveATreeThatIsTooDeep) {
  TempDir dir;
  fs::path deep = dir.path() / "tree";
  for (int i = 0; i <= kMaxTreeDepth; ++i) {
    deep /= "d";
  }
  fs::create_directories(deep);
  EXPECT_THAT(open_or_die(dir.path()).remove_tree("tree"),
              FailsWith(ErrorCode::kUnsupported, "too deep"));
}

TEST(Directory, HoldsItsLockAgainstOthers) {
  TempDir dir;
  const Directory second = open_or_die(dir.path());
  {
    const Directory first = open_or_die(dir.path());
    EXPECT_EQ(first.try_lock(), true);
    EXPECT_EQ(second.try_lock(), false);
    EXPECT_TRUE(second.is_locked());
  }
  EXPECT_FALSE(second.is_locked());
  EXPECT_EQ(second.try_lock(), true);
}

TEST(Directory, GivesItsLockBackEvenIfAForkedChildLives) {
  TempDir dir;
  int hold[2];
  ASSERT_EQ(::pipe(hold), 0);
  pid_t child = -1;
  {
    const Directory first = open_or_die(dir.path());
    EXPECT_EQ(first.try_lock(), true);
    child = ::fork();
    if (child == 0) {  // it has the open folder, too
      ::close(hold[1]);
      char byte = 0;
      ::_exit(::read(hold[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  EXPECT_EQ(open_or_die(dir.path()).try_lock(), true);
  ::close(hold[0]);
  ::close(hold[1]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Directory, DetectsThatItWasRemoved) {
  TempDir dir;
  fs::create_directory(dir.path() / "gone");
  const Directory gone = open_or_die(dir.path() / "gone");
  EXPECT_FALSE(gone.is_removed());
  fs::remove(dir.path() / "gone");
  EXPECT_TRUE(gone.is_removed());
}

TEST(RenameEntry, ReplacesOnlyIfAllowed) {
  TempDir dir;
  dir.write("new", "new");
  dir.write("old", "old");
  const Directory folder = open_or_die(dir.path());
  EXPECT_THAT(rename_entry(folder, "new", folder, "old", Replace::kNo),
              FailsWith(ErrorCode::kAlreadyExists, "old"));
  EXPECT_EQ(read_text(dir.path() / "old"), "old");
  EXPECT_THAT(rename_entry(folder, "new", folder, "old", Replace::kYes), IsOk());
  EXPECT_EQ(read_text(dir.path() / "old"), "new");
}

}  // namespace
}  // namespace onnx_external
