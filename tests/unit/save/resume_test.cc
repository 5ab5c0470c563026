#include "save/resume.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "save/journal.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

const std::string kJob(64, 'a');

void append(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

class JournalFile : public testing::Test {
 protected:
  void start(const WrittenParts& written = WrittenParts(3)) {
    auto journal = Journal::start(folder(), kJob, written);
    ASSERT_THAT(journal, IsOk());
    ASSERT_THAT(journal->add(1, 0x1234, kJournaledBytes), IsOk());
  }
  Directory folder() const { return Directory::open(dir_.path()).value(); }
  fs::path file() const { return dir_.path() / std::string(kJournalName); }
  std::optional<WrittenParts> read(std::size_t parts = 3) const {
    return read_journal(folder(), kJob, parts);
  }

  TempDir dir_;
};

TEST_F(JournalFile, ClaimsWhatWasAddedToIt) {
  start({std::nullopt, std::nullopt, 7U});
  EXPECT_EQ(read(), (WrittenParts{std::nullopt, 0x1234U, 7U}));
  EXPECT_TRUE(has_journal_of(folder(), kJob));
}

TEST_F(JournalFile, HoldsLinesBackUntilTheyStandForEnoughBytes) {
  auto journal = Journal::start(folder(), kJob, WrittenParts(3));
  ASSERT_THAT(journal->add(0, 1, kJournaledBytes - 1), IsOk());
  EXPECT_EQ(read(), WrittenParts(3));
  ASSERT_THAT(journal->add(2, 3, 1), IsOk());
  EXPECT_EQ(read(), (WrittenParts{1U, std::nullopt, 3U}));
}

TEST_F(JournalFile, SaysNothingOfAnotherJob) {
  start();
  const std::string other(64, 'b');
  EXPECT_FALSE(has_journal_of(folder(), other));
  EXPECT_EQ(read_journal(folder(), other, 3), std::nullopt);
}

TEST_F(JournalFile, IgnoresATornLine) {
  start();
  append(file(), "00000002 0000");
  EXPECT_EQ(read(), (WrittenParts{std::nullopt, 0x1234U, std::nullopt}));
}

TEST_F(JournalFile, IgnoresALineWithAnotherCheckSum) {
  start();
  append(file(), "00000002 00000003 00000000\n");
  EXPECT_EQ(read(), (WrittenParts{std::nullopt, 0x1234U, std::nullopt}));
}

TEST_F(JournalFile, IgnoresAPartThatThePlanDoesNotHave) {
  start();
  EXPECT_EQ(read(1), WrittenParts(1));
}

TEST_F(JournalFile, IsRefusedWhenItIsLongerThanAnyOfOurs) {
  start();
  append(file(), std::string(1'000'000, 'x'));
  EXPECT_EQ(read(), std::nullopt);
}

TEST_F(JournalFile, IsRefusedWhereverItIsCut) {
  start();
  const std::string whole = read_text(file());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    fs::resize_file(file(), size);
    const auto claimed = read();
    ASSERT_TRUE(!claimed || *claimed == WrittenParts(3)) << size;
    std::ofstream(file(), std::ios::binary) << whole;
  }
}

TEST_F(JournalFile, NeverClaimsMoreWhateverByteIsChanged) {
  start();
  const std::string whole = read_text(file());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      std::ofstream(file(), std::ios::binary) << changed;
      const auto claimed = read();
      ASSERT_TRUE(!claimed || *claimed == WrittenParts(3)) << i;
    }
  }
}

TEST_F(JournalFile, IsNotReadThroughALinkOrFromAFifo) {
  start();
  fs::rename(file(), dir_.path() / "elsewhere");
  fs::create_symlink("elsewhere", file());
  EXPECT_EQ(read(), std::nullopt);
  fs::remove(file());
  fs::create_hard_link(dir_.path() / "elsewhere", file());
  EXPECT_EQ(read(), std::nullopt);
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(read(), std::nullopt);
}

TEST_F(JournalFile, TakesThePlaceOfAnEarlierOne) {
  start();
  start({5U, std::nullopt, std::nullopt});
  EXPECT_EQ(read(), (WrittenParts{5U, 0x1234U, std::nullopt}));
}

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
    resumed_ = staged ? staged->bytes_resumed() : 0;
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

TEST_F(Resumed, WritesAnewWhatIsDamaged) {
  die();
  std::string text = read_text(staging_ / "initializers/large.weight");
  text[77] ^= 1;
  std::ofstream(staging_ / "initializers/large.weight", std::ios::binary) << text;
  save_again();
  EXPECT_LT(resumed_, 1'200'000U);
}

TEST_F(Resumed, WritesAnewWhatIsTooLong) {
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

TEST_F(Resumed, StartsAnewWhenTheCheckpointChanged) {
  die();
  dir_.write("c.pt", torch_zip(tensors_));  // the same bytes at another time
  save_again();
  EXPECT_EQ(resumed_, 0U);
}

TEST_F(Resumed, StartsAnewWhenTold) {
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

TEST_F(Resumed, DoesNotGoOnInAFolderThatOthersMayWrite) {
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
