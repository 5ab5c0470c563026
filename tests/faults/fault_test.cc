// Every system call of a save that changes a file is made to fail once, and from then on; the
// process is killed before each: the old model stays complete, or the new one is.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "faults/fault_injection.h"
#include "onnx_external/test_data.h"
#include "onnx_external/verify.h"
#include "save/publish.h"
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

  // The same with `sets` sets of recorded inputs.
  Status save_with_inputs(const fs::path& out, std::uint32_t seed, std::size_t sets,
                          Fault fault = Fault::kNone, std::size_t nth = 0, int error_number = 0) {
    const std::vector<TestTensor> weights{{.name = "w", .shape = {4}, .bytes = noise(16, seed)}};
    const Checkpoint checkpoint = open_one(dir_.write("w.pt", torch_zip(weights)));
    const auto recorded =
        dir_.write("x.pt", torch_zip({{.name = "x", .shape = {2}, .bytes = noise(8, seed)}}));
    Model model = model_for(weights);
    RecordedInputs inputs;
    inputs.recordings.push_back(open_recording(recorded).value());
    const TestInput input{.name = "x", .recorded = "x", .data_type = kFloat, .dims = {2}};
    inputs.data.sets.resize(sets, {.inputs = {input}, .unused = {}});
    WriteOptions options;
    options.threads = 1;
    options.overwrite = Overwrite::kAllow;
    inject(fault, nth, error_number);
    Status status = save_planned(checkpoint, model, out, options, inputs);
    calls_ = stop_injecting();
    return status;
  }
  static Status save_planned(const Checkpoint& checkpoint, const Model& model, const fs::path& out,
                             const WriteOptions& options, const RecordedInputs& inputs) {
    const auto plan =
        plan_save(model, checkpoint, map_by_name(model, checkpoint), {.folder = out}, {}, options);
    auto staged =
        plan ? write_plan(*plan, model, checkpoint, out, options, &inputs) : fail(plan.error());
    return staged ? staged->publish() : Status(fail(staged.error()));
  }
  // A model whose manifest, data and recorded inputs agree, and nothing else.
  static testing::AssertionResult has_model_and_sets(const fs::path& out, std::size_t sets) {
    const auto report = verify_model(out / "model.onnx");
    if (!report || !report->ok()) {
      return testing::AssertionFailure()
             << (report ? finding_text(report->findings.front()) : report.error().message);
    }
    const std::size_t files = tree_of(out).size();
    const std::size_t expected = 4 + 2 * sets;  // model, folder, weight, manifest; folder and input
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

TEST_F(Faults, AKilledFirstSaveWithTestDataIsClearedUpByTheNextOne) {
  const fs::path out = dir_.path() / "out";
  for (std::size_t nth = 0;; ++nth) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(save_with_inputs(out, 2, 2, Fault::kKill, nth) ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    if (WIFEXITED(state)) {
      ASSERT_EQ(WEXITSTATUS(state), 0);
      break;
    }
    if (fs::exists(out / "model.onnx")) {
      ASSERT_TRUE(verify_model(out / "model.onnx")->ok()) << "call " << nth;
    }
    ASSERT_THAT(save_with_inputs(out, 1, 1), IsOk()) << "call " << nth;
    ASSERT_TRUE(has_model_and_sets(out, 1)) << "call " << nth;
    fs::remove_all(out);
  }
  EXPECT_TRUE(has_model_and_sets(out, 2));
}

TEST_F(Faults, AKilledReplacementOfTestDataIsClearedUpByTheNextSave) {
  const fs::path out = dir_.path() / "out";
  for (std::size_t nth = 0;; ++nth) {
    ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
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
    ASSERT_TRUE(is_complete(out)) << "call " << nth;
    ASSERT_THAT(save_with_inputs(out, 3, 1), IsOk()) << "call " << nth;
    ASSERT_TRUE(has_model_and_sets(out, 1)) << "call " << nth;
    fs::remove_all(out);
  }
  EXPECT_TRUE(has_model_and_sets(out, 3));
}

// The old one or the new one, where the folders of test data cannot change places either.
TEST_F(Faults, AKilledReplacementNeverMissesAFileOfTestData) {
  const fs::path out = dir_.path() / "out";
  pretend({.exchanges = false});
  for (std::size_t nth = 0;; ++nth) {
    ASSERT_THAT(save_with_inputs(out, 1, 1), IsOk());
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(save_with_inputs(out, 2, 1, Fault::kKill, nth) ? 0 : 1);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(fs::exists(out / "test_data_set_0/input_0.pb")) << "call " << nth;
    if (WIFEXITED(state)) {
      ASSERT_EQ(WEXITSTATUS(state), 0);
      break;
    }
    ASSERT_THAT(save_with_inputs(out, 3, 1), IsOk()) << "call " << nth;
    ASSERT_TRUE(has_model_and_sets(out, 1)) << "call " << nth;
    fs::remove_all(out);
  }
  EXPECT_TRUE(has_model_and_sets(out, 1));
  pretend({});
}

TEST_F(Faults, AKilledExchangeOfTestDataIsFinishedByTheNextSaveFileByFile) {
  const fs::path out = dir_.path() / "out";
  const fs::path staging = out / ".save-external.0123456789abcdef.tmp/test_data_set_0";
  pretend({.exchanges = false});
  ASSERT_THAT(save_with_inputs(out, 1, 1), IsOk());
  const std::string mine = read_text(out / "test_data_set_0/input_0.pb");
  fs::create_directories(staging);
  fs::rename(out / "test_data_set_0/input_0.pb", staging / "input_0.pb");
  dir_.write("out/test_data_set_0/input_0.pb", "old");
  dir_.write("out/test_data_set_0/input_1.pb", "old");
  ASSERT_THAT(
      Transaction::begin(out, {"model.onnx", "initializers.1", Sync::kNone, Overwrite::kAllow}),
      IsOk());
  EXPECT_EQ(read_text(out / "test_data_set_0/input_0.pb"), mine);
  EXPECT_TRUE(has_model_and_sets(out, 1));
  pretend({});
}

TEST_F(Faults, AnErrorInAnyCallLeavesTheOldTestDataWithTheOldModel) {
  const fs::path out = dir_.path() / "out";
  ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
  const auto before = tree_of(out);
  std::size_t failures = 0;
  for (std::size_t nth = 0;; ++nth) {
    const Status status = save_with_inputs(out, 2, 3, Fault::kFailOnce, nth, EIO);
    if (calls_ <= nth) {
      ASSERT_THAT(status, IsOk());
      break;
    }
    if (!status && tree_of(out) == before) {
      ++failures;
      continue;
    }
    if (!status) {
      ASSERT_THAT(status, FailsWith(ErrorCode::kIo, "the new model is in place")) << "call " << nth;
    }
    fs::remove_all(out);
    ASSERT_THAT(save_with_inputs(out, 1, 2), IsOk());
    ASSERT_EQ(tree_of(out), before);
  }
  EXPECT_GT(failures, 20U);
  EXPECT_TRUE(has_model_and_sets(out, 3));
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

TEST_F(Faults, AFullDiskIsTheErrorWhicheverThreadMeetsItFirst) {
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
                  FailsWith(ErrorCode::kIo, "No space left on device; make room"));
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
