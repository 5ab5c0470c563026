// Every system call of a save that changes a file is made to fail once, and from then on; the
// process is killed before each: the old model stays complete, or the new one is.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include "faults/fault_injection.h"
#include "onnx_external/test_data.h"
#include "onnx_external/verify.h"
#include "save/test_data_files.h"
#include "save/transaction.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A save that replaces another one: how the two are laid out, and what they leave.
struct Replacement {
  PlanOptions before = {};
  PlanOptions after = {};
  std::size_t entries_before = 8;  // model, folder, 5 files, manifest
  std::size_t entries_after = 8;
  std::string new_data = "initializers.1/";
};

PlanOptions single() {
  return {.layout = Layout::kSingle};
}
// Two shards of mixed_tensors().
PlanOptions shards() {
  return {.layout = Layout::kShards, .max_shard_bytes = 1'201'000};
}

class Faults : public testing::Test {
 protected:
  ~Faults() override { pretend({}); }

  // Saves over what is in `out`. One thread: calls are counted.
  Status save(const fs::path& out, std::uint32_t seed, Fault fault = Fault::kNone,
              std::size_t nth = 0, int error_number = 0) {
    const PlanOptions& layout = seed == 1 ? replacement_.before : replacement_.after;
    const fs::path file = checkpoint_file(seed);
    return save(out, open_one(file), tensors_[seed], fault, nth, error_number, layout);
  }

  // Made once.
  fs::path checkpoint_file(std::uint32_t seed) {
    fs::path file = dir_.path() / ("c" + std::to_string(seed) + ".pt");
    if (tensors_[seed].empty()) {
      tensors_[seed] = mixed_tensors(seed);
      dir_.write(file.filename(), torch_zip(tensors_[seed]));
    }
    return file;
  }

  Status save(const fs::path& out, const std::vector<TestTensor>& tensors, Fault fault,
              std::size_t nth, int error_number, const PlanOptions& layout = {}) {
    return save(out, open_one(dir_.write("c.pt", torch_zip(tensors))), tensors, fault, nth,
                error_number, layout);
  }

  Status save(const fs::path& out, const Checkpoint& checkpoint,
              const std::vector<TestTensor>& tensors, Fault fault, std::size_t nth,
              int error_number, const PlanOptions& layout) {
    Model model = model_for(tensors);
    WriteOptions options;
    options.threads = 1;
    options.overwrite = Overwrite::kAllow;
    inject(fault, nth, error_number);
    Status status = save_all(checkpoint, model, out, options, layout);
    calls_ = stop_injecting();
    return status;
  }

  // The same, then `sets` sets of recorded inputs, as one save with both does it.
  Status save_with_inputs(const fs::path& out, std::uint32_t seed, std::size_t sets,
                          Fault fault = Fault::kNone, std::size_t nth = 0, int error_number = 0) {
    const std::vector<TestTensor> weights{{.name = "w", .shape = {4}, .bytes = noise(16, seed)}};
    const Checkpoint checkpoint = open_one(dir_.write("w.pt", torch_zip(weights)));
    const auto recorded = dir_.write("x.pt", torch_zip(inputs_of(seed)));
    Model model = model_for(weights);
    RecordedInputs inputs;
    inputs.recordings.push_back(open_recording(recorded).value());
    for (std::size_t set = 0; set < sets; ++set) {
      inputs.data.sets.push_back(
          {.inputs =
               {{.name = "x", .recorded = "x", .tensor = 0, .data_type = kFloat, .dims = {2}},
                {.name = "y", .recorded = "y", .tensor = 1, .data_type = kFloat, .dims = {3}}},
           .unused = {}});
    }
    WriteOptions options;
    options.threads = 1;
    options.overwrite = Overwrite::kAllow;
    inject(fault, nth, error_number);
    Status status = check_test_data_files(inputs, out, options.overwrite);
    status = status ? save_all(checkpoint, model, out, options) : std::move(status);
    if (status) {
      status = write_test_data(inputs, out, {options.overwrite});
    }
    calls_ = stop_injecting();
    return status;
  }
  static std::vector<TestTensor> inputs_of(std::uint32_t seed) {
    return {{.name = "x", .shape = {2}, .bytes = noise(8, seed)},
            {.name = "y", .shape = {3}, .bytes = noise(12, seed + 1)}};
  }
  // Each set that is there has all inputs of one of these saves, and nothing else.
  static testing::AssertionResult has_whole_sets(const fs::path& out,
                                                 const std::vector<std::uint32_t>& seeds) {
    for (const auto& entry : fs::directory_iterator(out)) {
      if (!entry.path().filename().string().starts_with("test_data_set_")) {
        continue;
      }
      const std::string x = read_text(entry.path() / "input_0.pb");
      const std::string y = read_text(entry.path() / "input_1.pb");
      const bool is_whole = std::any_of(seeds.begin(), seeds.end(), [&](std::uint32_t seed) {
        return x.ends_with(noise(8, seed)) && y.ends_with(noise(12, seed + 1));
      });
      if (!is_whole || tree_of(entry.path()).size() != 2) {
        return testing::AssertionFailure() << entry.path() << " is not whole";
      }
    }
    return testing::AssertionSuccess();
  }
  // A model whose manifest and data agree, these sets, and nothing else.
  static testing::AssertionResult has_model_and_sets(const fs::path& out, std::size_t sets) {
    const auto report = verify_model(out / "model.onnx");
    if (!report || !report->ok()) {
      return testing::AssertionFailure()
             << (report ? finding_text(report->findings.front()) : report.error().message);
    }
    const std::size_t files = tree_of(out).size();
    const std::size_t expected = 4 + 3 * sets;  // model, folder, weight, manifest; folder, inputs
    return files == expected ? testing::AssertionSuccess()
                             : testing::AssertionFailure() << files << " files, not " << expected;
  }

  bool has_new_model(const fs::path& out) const {
    return read_text(out / "model.onnx").find(replacement_.new_data) != std::string::npos;
  }

  // A failure leaves the folder as it was; only the last sync comes after the commit.
  void fail_each_call(Fault fault, int error_number) {
    const fs::path out = dir_.path() / "out";
    ASSERT_THAT(save(out, 1), IsOk());
    const auto before = tree_of(out);
    std::size_t failures = 0;
    for (std::size_t nth = 0;; ++nth) {
      const Status status = save(out, 2, fault, nth, error_number);
      ASSERT_TRUE(is_complete(out)) << "call " << nth;
      if (calls_ <= nth) {
        ASSERT_THAT(status, IsOk());
        break;
      }
      if (!status && !has_new_model(out)) {
        ++failures;
        ASSERT_EQ(tree_of(out), before) << "call " << nth << ": " << status.error().message;
        continue;
      }
      if (!status) {
        ASSERT_THAT(status, FailsWith(ErrorCode::kIo, "the new model is in place"));
      }
      ASSERT_TRUE(has_new_model(out)) << "call " << nth;
      fs::remove_all(out);
      ASSERT_THAT(save(out, 1), IsOk());
    }
    EXPECT_GT(failures, 10U);
    EXPECT_TRUE(has_new_model(out));
    EXPECT_EQ(tree_of(out).size(), replacement_.entries_after);
  }

  void kill_at_each_call() {
    (void)checkpoint_file(2);  // children would each make their own
    const fs::path out = dir_.path() / "out";
    ASSERT_THAT(save(out, 1), IsOk());
    int old_models = 0;
    int new_models = 0;
    for (std::size_t nth = 0;; ++nth) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::_exit(save(out, 2, Fault::kKill, nth) ? 0 : 1);
      }
      int state = 0;
      ASSERT_EQ(::waitpid(child, &state, 0), child);
      ASSERT_TRUE(is_complete(out)) << "call " << nth;
      if (WIFEXITED(state)) {
        ASSERT_EQ(WEXITSTATUS(state), 0);
        break;
      }
      ++(has_new_model(out) ? new_models : old_models);
      // The next save removes whatever the dead one left.
      ASSERT_THAT(save(out, 1), IsOk());
      ASSERT_EQ(tree_of(out).size(), replacement_.entries_before) << "call " << nth;
      fs::remove_all(out);
      ASSERT_THAT(save(out, 1), IsOk());
    }
    EXPECT_GT(old_models, 10);
    EXPECT_GT(new_models, 0);
    EXPECT_EQ(tree_of(out).size(), replacement_.entries_after);
  }

  Replacement replacement_;

  TempDir dir_;
  std::size_t calls_ = 0;
  std::map<std::uint32_t, std::vector<TestTensor>> tensors_;  // by seed; their checkpoint is there
};

TEST_F(Faults, AnErrorInAnyCallLeavesTheOldModel) {
  fail_each_call(Fault::kFailOnce, EIO);
}

TEST_F(Faults, AFullDiskLeavesTheOldModel) {
  fail_each_call(Fault::kFailForever, ENOSPC);
}

TEST_F(Faults, AFirstSaveThatFailsLeavesNothing) {
  const fs::path out = dir_.path() / "a" / "out";
  for (std::size_t nth = 0;; ++nth) {
    const Status status = save(out, 1, Fault::kFailForever, nth, ENOSPC);
    if (status) {
      ASSERT_LE(calls_, nth);
      break;
    }
    if (fs::exists(out / "model.onnx")) {
      ASSERT_THAT(status, FailsWith(ErrorCode::kIo, "the new model is in place"));
      fs::remove_all(dir_.path() / "a");
    }
    ASSERT_FALSE(fs::exists(dir_.path() / "a")) << "call " << nth;
  }
  EXPECT_TRUE(is_complete(out));
}

TEST_F(Faults, AKillAtAnyCallLeavesTheOldModelOrTheNewOne) {
  kill_at_each_call();
}

TEST_F(Faults, AnErrorLeavesTheOldModelWhereFoldersAreMovedFileByFile) {
  pretend({.folder_renames = EMFILE});
  fail_each_call(Fault::kFailForever, EIO);
}

TEST_F(Faults, AKillLeavesTheOldModelOrTheNewOneWhereFoldersAreMovedFileByFile) {
  pretend({.folder_renames = EXDEV});
  kill_at_each_call();
}

TEST_F(Faults, AnErrorLeavesTheOldModelInASingleFile) {
  replacement_ = {single(), single(), 3, 3, "model.1.data"};
  fail_each_call(Fault::kFailOnce, EIO);
}

TEST_F(Faults, AFullDiskLeavesTheOldModelInShards) {
  replacement_ = {shards(), shards(), 4, 4, "model.1-00001-of-00002.data"};
  fail_each_call(Fault::kFailForever, ENOSPC);
}

TEST_F(Faults, AKillLeavesTheOldShardsOrTheNewOnes) {
  replacement_ = {shards(), shards(), 4, 4, "model.1-00001-of-00002.data"};
  kill_at_each_call();
}

TEST_F(Faults, AKillWhenTheLayoutChangesLeavesTheOldModelOrTheNewOne) {
  replacement_ = {.after = single(), .entries_after = 3, .new_data = "model.1.data"};
  kill_at_each_call();
}

TEST_F(Faults, AKillWhenASingleFileBecomesAFolderLeavesTheOldModelOrTheNewOne) {
  replacement_ = {.before = single(), .entries_before = 3};
  kill_at_each_call();
}

TEST_F(Faults, AKilledSaveWithTestDataLeavesWholeSetsAndTheNextOneClearsUp) {
  const fs::path out = dir_.path() / "out";
  for (const bool replaces : {false, true}) {
    for (std::size_t nth = 0;; ++nth) {
      if (replaces) {
        ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
      }
      const pid_t child = ::fork();
      if (child == 0) {
        ::_exit(save_with_inputs(out, 2, 3, Fault::kKill, nth) ? 0 : 1);
      }
      int state = 0;
      ASSERT_EQ(::waitpid(child, &state, 0), child);
      if (WIFEXITED(state)) {
        ASSERT_EQ(WEXITSTATUS(state), 0);
        break;
      }
      if (replaces || fs::exists(out / "model.onnx")) {
        ASSERT_TRUE(is_complete(out)) << "call " << nth;
        ASSERT_TRUE(has_whole_sets(out, {1, 2})) << "call " << nth;
      }
      ASSERT_THAT(save_with_inputs(out, 3, 1), IsOk()) << "call " << nth;
      ASSERT_TRUE(has_model_and_sets(out, 1)) << "call " << nth;
      ASSERT_TRUE(has_whole_sets(out, {3})) << "call " << nth;
      fs::remove_all(out);
    }
    EXPECT_TRUE(has_model_and_sets(out, 3));
    fs::remove_all(out);
  }
}

// An error in the model's save changes nothing; one in that of the test data leaves whole sets.
TEST_F(Faults, AnErrorInAnyCallLeavesWholeSetsOfTestData) {
  const fs::path out = dir_.path() / "out";
  ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
  const auto before = tree_of(out);
  std::size_t unchanged = 0;
  std::size_t with_new_model = 0;
  for (std::size_t nth = 0;; ++nth) {
    const Status status = save_with_inputs(out, 2, 3, Fault::kFailOnce, nth, EIO);
    if (calls_ <= nth) {
      ASSERT_THAT(status, IsOk());
      break;
    }
    ASSERT_TRUE(has_whole_sets(out, {1, 2})) << "call " << nth;
    ASSERT_TRUE(is_complete(out)) << "call " << nth;
    if (!status) {
      ++(tree_of(out) == before ? unchanged : with_new_model);
    }
    fs::remove_all(out);
    ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
    ASSERT_EQ(tree_of(out), before);
  }
  EXPECT_GT(unchanged, 20U);
  EXPECT_GT(with_new_model, 10U);
  EXPECT_TRUE(has_model_and_sets(out, 3));
}

TEST_F(Faults, TheDiskWritesALongFileWhileItIsCopied) {
  std::vector<TestTensor> tensors;
  for (std::uint32_t i = 0; i < 5; ++i) {
    tensors.push_back(
        {.name = "t" + std::to_string(i), .shape = {1 << 19}, .bytes = noise(1 << 21, i)});
  }
  PlanOptions single;
  single.layout = Layout::kSingle;
  ASSERT_THAT(save(dir_.path() / "out", tensors, Fault::kNone, 0, 0, single), IsOk());
  EXPECT_EQ(started_writebacks(), 6U);  // one for each 2 MiB, and one at the end
}

TEST_F(Faults, ManyFilesAreSyncedTogetherAndAnErrorOfThatPublishesNothing) {
  std::vector<TestTensor> tensors;
  for (std::uint32_t i = 0; i < 300; ++i) {
    tensors.push_back({.name = "t" + std::to_string(i), .shape = {2}, .bytes = noise(8, i)});
  }
  const fs::path out = dir_.path() / "out";
  constexpr std::size_t kNever = 1'000'000;
  ASSERT_THAT(save(out, tensors, Fault::kFailOnce, kNever, EIO), IsOk());
  ASSERT_EQ(syncs_of_file_systems(), 1U);
  const std::size_t all = calls_;
  fs::remove_all(out);
  std::size_t failures = 0;
  for (std::size_t nth = all - 40; nth < all; ++nth) {  // the copies, the sync, the publishing
    if (save(out, tensors, Fault::kFailOnce, nth, EIO)) {
      fs::remove_all(out);
      continue;
    }
    const bool committed = fs::exists(out / "model.onnx");
    ASSERT_TRUE(committed || !fs::exists(out)) << "call " << nth;
    failures += committed ? 0 : 1;
    fs::remove_all(out);
  }
  EXPECT_GT(failures, 10U);
}

TEST_F(Faults, AFullDiskIsReportedWhicheverThreadHitsItFirst) {
  const std::vector<TestTensor> tensors = mixed_tensors(1);
  const Checkpoint checkpoint = open_one(checkpoint_file(1));
  const PlanOptions inside{.layout = Layout::kInline};
  WriteOptions options;
  options.threads = 16;
  pretend({.room = false});
  for (const PlanOptions& layout : {single(), shards(), inside}) {
    for (int round = 0; round < 50; ++round) {
      Model model = model_for(tensors);
      EXPECT_THAT(save_all(checkpoint, model, dir_.path() / "out", options, layout),
                  FailsWith(ErrorCode::kIo, "No space left on device; free some disk space"));
    }
  }
  pretend({});
}

TEST_F(Faults, ShortTransfersAndInterruptsChangeNothingInSharedFiles) {
  replacement_.before = shards();
  ASSERT_THAT(save(dir_.path() / "whole", 1), IsOk());
  ASSERT_THAT(save(dir_.path() / "short", 1, Fault::kShort), IsOk());
  EXPECT_EQ(tree_of(dir_.path() / "whole"), tree_of(dir_.path() / "short"));
}

TEST_F(Faults, ShortTransfersAndInterruptsChangeNothing) {
  ASSERT_THAT(save(dir_.path() / "whole", 1), IsOk());
  ASSERT_THAT(save(dir_.path() / "short", 1, Fault::kShort), IsOk());
  EXPECT_EQ(tree_of(dir_.path() / "whole"), tree_of(dir_.path() / "short"));
}

}  // namespace
}  // namespace onnx_external
