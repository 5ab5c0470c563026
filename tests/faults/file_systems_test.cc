// File systems and containers in which some calls always fail: saves do without these calls, or say
// before the copying what does not work and which option helps.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/copy_range.h"
#include "faults/fault_injection.h"
#include "onnx_external/test_data.h"
#include "onnx_external/verify.h"
#include "save/test_data_files.h"
#include "support/pattern.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr int kNotSupported = 524;  // ENOTSUPP, which the kernel should keep to itself

class FileSystems : public testing::Test {
 protected:
  ~FileSystems() override { pretend({}); }

  Status save(std::uint32_t seed, const PlanOptions& plan = {}, Sync sync = Sync::kFiles) {
    const std::vector<TestTensor> tensors = mixed_tensors(seed);
    return save(tensors, plan, sync);
  }
  Status save(const std::vector<TestTensor>& tensors, const PlanOptions& plan, Sync sync) {
    WriteOptions options;
    options.threads = 1;
    options.sync = sync;
    options.overwrite = Overwrite::kAllow;
    return save_all(open_one(dir_.write("c.pt", torch_zip(tensors))), model_for(tensors), out_,
                    options, plan);
  }
  // Enough for a look at the file system before the copying.
  static std::vector<TestTensor> many_bytes() {
    return {{.name = "w", .shape = {4'200'000}, .bytes = std::string(16'800'000, 'x')}};
  }
  [[nodiscard]] std::map<std::string, std::string> first_and_second_save(FileSystem system,
                                                                         const PlanOptions& plan) {
    pretend(system);
    EXPECT_THAT(save(1, plan), IsOk());
    EXPECT_THAT(save(2, plan), IsOk());
    pretend({});
    const auto report = verify_model(out_ / "model.onnx");
    EXPECT_TRUE(report && report->ok());
    auto tree = tree_of(out_);
    fs::remove_all(out_);
    return tree;
  }
  Status record_inputs(std::uint32_t seed) {
    const std::vector<TestTensor> given{{.name = "x", .shape = {2}, .bytes = noise(8, seed)}};
    const auto recorded = dir_.write("x.pt", torch_zip(given));
    RecordedInputs inputs;
    inputs.recordings.push_back(open_recording(recorded).value());
    inputs.data.sets.push_back(
        {.inputs = {{.name = "x", .recorded = "x", .tensor = 0, .data_type = kFloat, .dims = {2}}},
         .unused = {}});
    fs::create_directories(out_);
    return write_test_data(inputs, out_, {Overwrite::kAllow});
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
};

TEST_F(FileSystems, CopyInAnotherWayAfterAnyErrorOfTheKernelsCopies) {
  const std::string content = pattern(3'000'000);
  const auto source = SourceFile::open(dir_.write("source", content)).value();
  const Directory folder = Directory::open(dir_.path()).value();
  for (const int error : {EPERM, EIO, ENOENT, ETXTBSY, EOPNOTSUPP, ENOSYS, EXDEV, EINVAL, EBADF,
                          ENOSPC, EACCES, kNotSupported}) {
    pretend({.copies = error});
    for (const Mover mover : {Mover::kFileSystem, Mover::kSplice}) {
      const OutputFile target = OutputFile::create(folder, "target").value();
      RangeCopier copier(mover);
      EXPECT_THAT(copier.copy({*source, 5, 2'900'000, target, 7, {}}), IsOk()) << error;
      EXPECT_EQ(read_text(dir_.path() / "target").substr(7), content.substr(5, 2'900'000));
      fs::remove(dir_.path() / "target");
    }
  }
}

TEST_F(FileSystems, ReportTheErrorOfTheWriteThatCameLast) {
  const auto source = SourceFile::open(dir_.write("source", pattern(3'000'000))).value();
  const Directory folder = Directory::open(dir_.path()).value();
  const OutputFile target = OutputFile::create(folder, "target").value();
  RangeCopier copier(Mover::kFileSystem);
  pretend({.copies = EPERM});
  inject(Fault::kFailForever, 1, ENOSPC);  // the write after the first read
  const Status status = copier.copy({*source, 0, 3'000'000, target, 0, {}});
  (void)stop_injecting();
  EXPECT_THAT(status, FailsWith(ErrorCode::kIo, "target: byte 0: cannot write: No space left"));
}

TEST_F(FileSystems, NeedNotReserveAnything) {
  for (const int error : {EOPNOTSUPP, ENOSYS, EINVAL, EIO, EPERM, ENODEV, kNotSupported}) {
    pretend({.reservations = error});
    EXPECT_THAT(save(1), IsOk()) << error;
  }
  pretend({.reservations = EFBIG});
  EXPECT_THAT(save(1), FailsWith(ErrorCode::kIo, "cannot reserve"));
}

TEST_F(FileSystems, NeedNotSyncFolders) {
  for (const int error : {EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EBADF, EROFS, kNotSupported}) {
    pretend({.folder_syncs = error});
    EXPECT_THAT(save(1), IsOk()) << error;
  }
}

TEST_F(FileSystems, ThatLoseFoldersAreDetectedBeforeCopyingAndTheFixIsNamed) {
  pretend({.folder_syncs = EIO});
  inject(Fault::kNone);
  EXPECT_THAT(save(many_bytes(), {}, Sync::kFiles), FailsWith(ErrorCode::kIo, "--no-fsync"));
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_THAT(save(many_bytes(), {}, Sync::kNone), IsOk());
}

TEST_F(FileSystems, NeedNotRenameFolders) {
  for (const PlanOptions& plan : {PlanOptions(), PlanOptions{.layout = Layout::kSingle}}) {
    const auto usual = first_and_second_save({}, plan);
    for (const int error : {EMFILE, EXDEV, ENOSYS, EPERM, EIO}) {
      EXPECT_EQ(first_and_second_save({.folder_renames = error}, plan), usual) << error;
      EXPECT_EQ(first_and_second_save({.rename_flags = false, .folder_renames = error}, plan),
                usual)
          << error;
    }
  }
}

TEST_F(FileSystems, NeedNotRenameFoldersOfRecordedInputs) {
  ASSERT_THAT(record_inputs(1), IsOk());
  for (const int error : {EMFILE, EXDEV}) {
    pretend({.folder_renames = error});
    ASSERT_THAT(record_inputs(static_cast<std::uint32_t>(error)), IsOk());
    const auto tree = tree_of(out_);
    EXPECT_EQ(tree.size(), 2U);
    EXPECT_TRUE(tree.at("test_data_set_0/input_0.pb")
                    .ends_with(noise(8, static_cast<std::uint32_t>(error))));
  }
}

TEST_F(FileSystems, ThatCannotRenameFilesAreDetectedBeforeCopying) {
  for (const int error : {ENOSYS, EPERM, EOPNOTSUPP, EMFILE, EXDEV}) {
    pretend({.renames = error});
    inject(Fault::kFailOnce, 1'000'000);  // only counts
    const Status status = save(many_bytes(), {.layout = Layout::kSingle}, Sync::kNone);
    EXPECT_LT(stop_injecting(), 40U);  // the copies alone are 65
    EXPECT_THAT(status, FailsWith(ErrorCode::kIo, "choose a folder on another file system"));
    EXPECT_EQ(status.error().message.find("ulimit"), std::string::npos);
    EXPECT_FALSE(fs::exists(out_));
  }
}

TEST_F(FileSystems, ThatCannotReplaceFilesAreDetectedBeforeCopying) {
  ASSERT_THAT(save(1), IsOk());
  const auto before = tree_of(out_);
  pretend({.replacements = EPERM});
  EXPECT_THAT(save(2), FailsWith(ErrorCode::kIo, "choose a folder on another file system"));
  EXPECT_EQ(tree_of(out_), before);
}

}  // namespace
}  // namespace onnx_external
