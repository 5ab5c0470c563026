// Saves that were killed, and the same saves again.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A dead saver's staging folder, and the same save again.
class Resumed : public testing::Test {
 protected:
  void SetUp() override {
    dir_.write("c.pt", torch_zip(tensors_));
    ASSERT_THAT(save(dir_.path() / "clean"), IsOk());
    clean_ = tree_of(dir_.path() / "clean");
  }

  Result<StagedSave> stage_in(const fs::path& out) {
    const Checkpoint checkpoint = open_one(dir_.path() / "c.pt");
    Model model = model_for(tensors_);
    WriteOptions options;
    options.threads = 1;
    options.sync = Sync::kNone;
    options.resume = resume_;
    options.overwrite = Overwrite::kAllow;
    options.checksum = checksum_;
    options.progress = progress_;
    return stage(checkpoint, model, out, options, layout_);
  }
  Status save(const fs::path& out) {
    auto staged = stage_in(out);
    resumed_ = staged ? staged->written().bytes_resumed : 0;
    return staged ? staged->publish() : Status(fail(staged.error()));
  }
  // A process that dies when all is written and nothing is published.
  void die() {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto staged = stage_in(out_);
      ::_exit(staged ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_EQ(state, 0);
    for (const auto& entry : fs::directory_iterator(out_)) {
      staging_ = entry.path();
    }
  }
  void save_again() {
    ASSERT_THAT(save(out_), IsOk());
    EXPECT_EQ(tree_of(out_), clean_);
  }

  TempDir dir_;
  const std::vector<TestTensor> tensors_ = mixed_tensors(1);
  const fs::path out_ = dir_.path() / "out";
  fs::path staging_;
  Resume resume_ = Resume::kYes;
  Checksum checksum_ = Checksum::kNone;
  PlanOptions layout_;
  ProgressFn progress_;
  std::map<std::string, std::string> clean_;
  std::uint64_t resumed_ = 0;
};

TEST_F(Resumed, KeepsWhatIsWritten) {
  die();
  save_again();
  EXPECT_GE(resumed_, 1'200'000U);
}

TEST_F(Resumed, KeepsPartsOfASingleFile) {
  layout_.layout = Layout::kSingle;
  fs::remove_all(dir_.path() / "clean");
  SetUp();
  die();
  std::string text = read_text(staging_ / "model.data");
  text[text.size() - 10] ^= 1;  // the last tensor
  std::ofstream(staging_ / "model.data", std::ios::binary) << text;
  save_again();
  EXPECT_GE(resumed_, 1'200'000U);
}

TEST_F(Resumed, RewritesDamagedRanges) {
  die();
  std::string text = read_text(staging_ / "initializers/large.weight");
  text[77] ^= 1;
  std::ofstream(staging_ / "initializers/large.weight", std::ios::binary) << text;
  save_again();
  EXPECT_LT(resumed_, 1'200'000U);
}

TEST_F(Resumed, RewritesFilesThatAreTooLong) {
  die();
  append(staging_ / "initializers/large.weight", "more");
  save_again();
  EXPECT_LT(resumed_, 1'200'000U);
}

TEST_F(Resumed, RecordsChecksumsOfKeptFiles) {
  checksum_ = Checksum::kSha1;
  fs::remove_all(dir_.path() / "clean");
  SetUp();
  die();
  save_again();
  EXPECT_GE(resumed_, 1'200'000U);
}

TEST_F(Resumed, StartsOverWhenTheCheckpointChanged) {
  die();
  dir_.write("c.pt", torch_zip(tensors_));  // the same bytes at another time
  save_again();
  EXPECT_EQ(resumed_, 0U);
}

TEST_F(Resumed, StartsOverIfAsked) {
  die();
  resume_ = Resume::kNo;
  save_again();
  EXPECT_EQ(resumed_, 0U);
}

TEST_F(Resumed, RemovesWhatAnotherJobLeft) {
  die();
  layout_.layout = Layout::kSingle;
  ASSERT_THAT(save(out_), IsOk());
  EXPECT_EQ(resumed_, 0U);
  EXPECT_EQ(tree_of(out_).size(), 3U);  // model, data, manifest
}

TEST_F(Resumed, NeverWritesThroughAPlantedLink) {
  die();
  const fs::path victim = dir_.write("victim", tensors_[0].bytes);
  fs::remove(staging_ / "initializers/large.weight");
  fs::create_symlink(victim, staging_ / "initializers/large.weight");
  fs::remove(staging_ / "initializers/turned");
  fs::create_hard_link(victim, staging_ / "initializers/turned");
  append(staging_ / "initializers/planted", "planted");
  save_again();
  EXPECT_EQ(read_text(victim), tensors_[0].bytes);
}

TEST_F(Resumed, DoesNotContinueInAFolderThatOthersMayWriteTo) {
  die();
  fs::permissions(staging_, fs::perms::others_write, fs::perm_options::add);
  save_again();
  EXPECT_EQ(resumed_, 0U);
}

TEST_F(Resumed, LeavesNothingWhenItIsCancelled) {
  die();
  progress_ = [](const Progress&) { return Continue::kCancel; };
  EXPECT_THAT(save(out_), FailsWith(ErrorCode::kCancelled, "cancelled"));
  EXPECT_TRUE(fs::is_empty(out_));
}

TEST_F(Resumed, ReportsNothingKeptInAFirstRun) {
  save_again();
  EXPECT_EQ(resumed_, 0U);
}

}  // namespace
}  // namespace onnx_external
