#include "common/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "base/new_folders.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

bool can_open(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) {
    ::close(fd);
  }
  return fd >= 0;
}

// A checkpoint to read, a secret beside it, and an output folder; and a process that may use the
// first and the last only.
class Sandbox : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_.path() / "out");
    fs::create_directory(folder_.path() / "out" / "staging");
    folder_.write("in/checkpoint.pt", "weights");
    folder_.write("in/secret", "secret");
  }

  fs::path path(const char* name) const { return folder_.path() / name; }

  SandboxPaths paths() const {
    SandboxPaths paths;
    paths.read_checkpoints({path("in/checkpoint.pt")});
    paths.write.push_back(path("out"));
    return paths;
  }

  // Runs `attempt` in a process of its own, in the sandbox. Its answer; skips the test where the
  // kernel lacks `needed`.
  void expect_in_sandbox(const char* needed, const std::function<bool()>& attempt) {
    constexpr int kYes = 10;
    constexpr int kNo = 11;
    constexpr int kLacking = 12;
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string done = restrict_process(paths());
      const bool has = done.find(needed) != std::string::npos && !done.ends_with("forbidden");
      ::_exit(!has ? kLacking : attempt() ? kYes : kNo);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == kLacking) {
      GTEST_SKIP() << "no " << needed << " in this kernel or build";
    }
    EXPECT_EQ(WEXITSTATUS(status), kYes);
  }

  TempDir folder_;
};

TEST_F(Sandbox, ReadsTheNamedFileAndNothingBesideIt) {
  expect_in_sandbox("Landlock ABI", [&] {
    return can_open(path("in/checkpoint.pt"), O_RDONLY) && !can_open(path("in/secret"), O_RDONLY) &&
           !can_open("/etc/passwd", O_RDONLY) && !can_open(path("in"), O_RDONLY | O_DIRECTORY);
  });
}

TEST_F(Sandbox, WritesIntoTheOutputFolderOnly) {
  expect_in_sandbox("Landlock ABI", [&] {
    return can_open(path("out/new"), O_WRONLY | O_CREAT) &&
           !can_open(path("in/new"), O_WRONLY | O_CREAT) &&
           !can_open(path("in/checkpoint.pt"), O_WRONLY) &&
           ::unlink(path("in/checkpoint.pt").c_str()) != 0;
  });
}

TEST_F(Sandbox, RenamesWithinTheOutputFolderButNotOutOfIt) {
  expect_in_sandbox("Landlock ABI", [&] {
    return can_open(path("out/staging/model"), O_WRONLY | O_CREAT) &&
           ::rename(path("out/staging/model").c_str(), path("out/model").c_str()) == 0 &&
           ::rename(path("out/model").c_str(), path("in/model").c_str()) != 0;
  });
}

TEST_F(Sandbox, RunsNoProgram) {
  expect_in_sandbox("Landlock ABI", [] {
    char name[] = "true";
    char* const arguments[] = {name, nullptr};
    return ::execv("/bin/true", arguments) != 0;
  });
}

TEST_F(Sandbox, StartsThreadsButNoProcess) {
  expect_in_sandbox("seccomp", [] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(0);
    }
    return ran && child < 0;
  });
}

TEST_F(Sandbox, OpensNoSocket) {
  expect_in_sandbox("seccomp", [] {
    return ::socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM &&
           ::socket(AF_UNIX, SOCK_STREAM, 0) < 0;
  });
}

TEST_F(Sandbox, HoldsForThreadsThatStartLater) {
  expect_in_sandbox("Landlock ABI", [&] {
    bool could = true;
    std::thread([&] { could = can_open(path("in/secret"), O_RDONLY); }).join();
    return !could;
  });
}

TEST_F(Sandbox, ReadsTheFolderOfAModelInSeveralGgufFiles) {
  folder_.write("in/m-00001-of-00002.gguf", "GGUF");
  SandboxPaths paths;
  paths.read_checkpoints({path("in/m-00001-of-00002.gguf"), path("in/m.gguf")});
  EXPECT_EQ(paths.read, (std::vector<fs::path>{fs::canonical(path("in")), path("in/m.gguf")}));
}

TEST_F(Sandbox, ReadsTheFolderOfAShardIndexAndTheBlobsOfItsCache) {
  folder_.write("cache/snapshots/1/index", " {\"weight_map\": {}}");
  folder_.write("cache/blobs/shard", "weights");
  SandboxPaths paths;
  paths.read_checkpoints({path("cache/snapshots/1/index")});
  const fs::path cache = fs::canonical(path("cache"));
  EXPECT_EQ(paths.read, (std::vector<fs::path>{cache / "snapshots/1", cache / "blobs"}));
  folder_.write("cache/snapshots/1/part/config.json", "{}");
  SandboxPaths of_part;
  of_part.read_checkpoints({path("cache/snapshots/1/part")});
  EXPECT_EQ(of_part.read, (std::vector<fs::path>{cache / "snapshots/1/part", cache / "blobs"}));
}

TEST_F(Sandbox, LetsTheFoldersGoThatAFailedSaveMade) {
  auto made = NewFolders::make(path("new/deep"));
  ASSERT_TRUE(made);
  const pid_t child = ::fork();
  if (child == 0) {
    SandboxPaths paths;
    paths.remove_folders_in = {path("."), path("new")};
    (void)restrict_process(paths);
    *made = NewFolders();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(fs::exists(path("new")));
  made->keep();
}

}  // namespace
}  // namespace onnx_external
