// Executes a save plan: staged beside the target, copied in parallel at fixed places, published by
// renaming the model last.
//
// Nothing is ever opened for writing under its final name, so the sources of a save may be the very
// files that it replaces. The output bytes never depend on the number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"
#include "onnx_external/team.h"

namespace onnx_external {

enum class Sync : std::uint8_t { kNone, kFiles };  // kFiles: fsync data, model and folders
enum class Overwrite : std::uint8_t { kRefuse, kAllow };
enum class Resume : std::uint8_t { kNo, kYes };
enum class Checksum : std::uint8_t { kNone, kSha1 };  // of each data file, in external_data
// kBypass: tensors are copied past the page cache (O_DIRECT, where the file system has it), which
// keeps what other programs have in it: for checkpoints larger than memory. Else it is slower.
enum class PageCache : std::uint8_t { kUse, kBypass };

struct WriteOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  Checksum checksum = Checksum::kNone;
  // Whether to go on where a killed save of the same plan from the same, unchanged files stopped:
  // what it wrote is read again, and kept where its CRC-32 is right. The result is the same.
  Resume resume = Resume::kYes;
  PageCache cache = PageCache::kUse;
  MatchedInputs inputs = MatchedInputs::kRemove;
  ProgressFn progress;
  // Processes that write the plan together (team.h); null = this one alone. Killed saves of a team
  // are not resumed.
  Team* team = nullptr;
};

struct RecordedInputs;  // test_data.h

// A model with its data written into a staging folder inside the output folder, complete but not
// yet visible under its final name. Destroying it without publish() removes everything it wrote.
// One thread at a time.
class StagedSave {
 public:
  StagedSave(StagedSave&&) noexcept;
  StagedSave& operator=(StagedSave&&) noexcept;
  ~StagedSave();

  // The staging folder: holds the model file and its data under their final relative names,
  // so a loader can open it as it will be, but for data that is linked or kept.
  [[nodiscard]] const std::filesystem::path& directory() const;
  [[nodiscard]] std::filesystem::path model_path() const;
  // Relative to directory(); empty in a process that follows.
  [[nodiscard]] std::string manifest_location() const;

  // CRC-32 of each planned part, same index as SavePlan::parts; none with Layout::kLink.
  [[nodiscard]] const std::vector<std::uint32_t>& part_crcs() const;

  // Of the data files, what a killed save had written already.
  [[nodiscard]] std::uint64_t bytes_kept() const;

  // In a team: the leader publishes, the others wait for it, and all get its status.
  // Renames the data folder or files, then the model, to their final names; removes what an
  // overwritten model left behind. Only when this succeeded is the save done.
  [[nodiscard]] Status publish();

  // After publish(): data files of the replaced model that stay because another model of the folder
  // refers to them, each with the name of one. Empty in a process that follows.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> data_left_for() const;

 private:
  friend struct StagedSaveAccess;
  struct State;
  explicit StagedSave(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Writes all of `plan` into a new staging folder in `out_dir` (made if missing): the model with the
// planned tensors, and their data. On any error nothing is left. Room on the disk
// and limits on names and sizes are checked first. kIo, kCorrupt (a source is damaged), kCancelled,
// kAlreadyExists. `inputs`: test data to write beside the model.
// Files that are kept must still be as they were compared: kCorrupt when they are not.
// With Layout::kLink only the model and its manifest are written, and no tensor
// is read but those that stay inline; kInvalidArgument with a checksum, which needs whole files.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, const Model& model,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            const WriteOptions& options,
                                            const RecordedInputs* inputs = nullptr);

// For exporters that hold tensors in memory: add from any thread, then finish once.
//
//   auto writer = ExternalDataWriter::open("out", {});
//   const std::array<std::int64_t, 2> shape{10, 4};
//   auto proto = (*writer)->add("fc.weight", DType::kFloat32, shape, bytes);
//   *model.mutable_graph()->add_initializer() = *proto;
//   auto status = (*writer)->finish(model);
//
// Holds no tensor bytes: add() returns when they are in the file. Destroying it without finish()
// removes everything it wrote. The output does not depend on the order of the add() calls: a file
// is named after its tensor alone, as it is when the name is safe everywhere and has no upper-case
// letter, else "<escaped, cut>-<16 hex digits of its SHA-256>".
class ExternalDataWriter {
 public:
  struct Options {
    std::string model_name = "model.onnx";
    std::string data_dir = "initializers";
    Sync sync = Sync::kFiles;
    Overwrite overwrite = Overwrite::kRefuse;
  };
  ~ExternalDataWriter();

  [[nodiscard]] static Result<std::unique_ptr<ExternalDataWriter>> open(
      const std::filesystem::path& out_dir, const Options& options);

  // Writes one tensor (contiguous, row-major, little-endian) and returns the initializer that
  // refers to it. Thread-safe. kInvalidArgument for a twin name, one that is not UTF-8, or a wrong
  // number of bytes. Tensors of zero elements come back inline, as do small integer tensors
  // (kMaxInlineIntegerBytes).
  [[nodiscard]] Result<onnx::TensorProto> add(std::string_view name, DType dtype,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::byte> bytes);

  // Writes the manifest and the model, then publishes. No add() may run or follow.
  // kInvalidArgument when a tensor that was added is not an initializer of `model`.
  [[nodiscard]] Status finish(const onnx::ModelProto& model);

 private:
  struct State;
  explicit ExternalDataWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace onnx_external
