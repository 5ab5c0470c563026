// Carries out a save plan: writes into a staging folder, in parallel and at fixed offsets, then
// publishes by renaming, the model last.
//
// No file is opened for writing under its final name, so a save may read the files that it
// replaces. The output bytes do not depend on the number of threads.
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
// kBypass: tensors are copied past the page cache (with O_DIRECT where the file system supports
// it), so that the cached files of other programs stay in memory. It helps with checkpoints larger
// than memory, and is slower otherwise.
enum class PageCache : std::uint8_t { kUse, kBypass };

struct WriteOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  Checksum checksum = Checksum::kNone;
  // Whether to resume a killed save of the same plan from the same, unchanged files: parts that it
  // wrote are read again and not rewritten if their CRC-32 is right. The result is the same.
  Resume resume = Resume::kYes;
  PageCache cache = PageCache::kUse;
  MatchedInputs inputs = MatchedInputs::kRemove;
  ProgressFn progress;
  // Processes that write the plan together (team.h); null = this process alone. Killed saves of a
  // team are not resumed.
  Team* team = nullptr;
};

struct RecordedInputs;  // test_data.h

// A model and its data, complete in a staging folder inside the output folder, but not yet visible
// under their final names. Destroying it without publish() removes everything that was written. One
// thread at a time.
class StagedSave {
 public:
  StagedSave(StagedSave&&) noexcept;
  StagedSave& operator=(StagedSave&&) noexcept;
  ~StagedSave();

  // The staging folder. It holds the model file and its data under their final relative names, so a
  // loader can open the model there, unless its data is linked or reused.
  [[nodiscard]] const std::filesystem::path& directory() const;
  [[nodiscard]] std::filesystem::path model_path() const;
  // Relative to directory(); in a team, empty for all but the leader.
  [[nodiscard]] std::string manifest_location() const;

  // The CRC-32 of each planned part, by index into SavePlan::parts; empty with Layout::kLink.
  [[nodiscard]] const std::vector<std::uint32_t>& part_crcs() const;

  // How many bytes of the data files a killed save had already written.
  [[nodiscard]] std::uint64_t bytes_resumed() const;

  // Renames the data folder or files, then the model, to their final names, and removes the data of
  // a replaced model. The save is done only if this succeeds. In a team the leader publishes, the
  // others wait for it, and all get its status.
  [[nodiscard]] Status publish();

  // After publish(): data files of the replaced model that stay because another model of the folder
  // refers to them, each with the name of one such model. In a team, empty for all but the leader.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> data_left_for() const;

 private:
  friend struct StagedSaveAccess;
  struct State;
  explicit StagedSave(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Writes all of `plan` into a new staging folder in `out_dir` (created if missing): the model with
// the planned tensors, and their data. `inputs`: test data to write beside the model. Free space
// and limits on names and sizes are checked first. After an error nothing is left behind.
//
// With Layout::kLink only the model and its manifest are written, and only tensors that stay inline
// are read.
//
// kIo; kCorrupt if a source is damaged, or if a reused file (SavePlan::reused) has changed since it
// was compared; kCancelled; kAlreadyExists; kInvalidArgument for a checksum with kLink, which would
// need whole files.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, const Model& model,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            const WriteOptions& options,
                                            const RecordedInputs* inputs = nullptr);

// For exporters that hold tensors in memory: call add() from any thread, then finish() once.
//
//   auto writer = ExternalDataWriter::open("out", {});
//   const std::array<std::int64_t, 2> shape{10, 4};
//   auto proto = (*writer)->add("fc.weight", DType::kFloat32, shape, bytes);
//   *model.mutable_graph()->add_initializer() = *proto;
//   auto status = (*writer)->finish(model);
//
// It holds no tensor bytes: add() returns once they are in the file. Destroying it without finish()
// removes everything that was written. The output does not depend on the order of the add() calls:
// the name of a file depends only on its tensor's name. It is that name if it is safe on every file
// system and has no upper-case letter, otherwise "<escaped, cut>-<16 hex digits of its SHA-256>".
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
  // refers to it. The data of tensors without elements and of small integer tensors
  // (kMaxInlineIntegerBytes) stays in the initializer. Thread-safe. kInvalidArgument for a name
  // that was added before or is not UTF-8, and for a wrong number of bytes.
  [[nodiscard]] Result<onnx::TensorProto> add(std::string_view name, DType dtype,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::byte> bytes);

  // Writes the manifest and the model, then publishes. No add() may run at the same time or later.
  // kInvalidArgument if a tensor that was added is not an initializer of `model`.
  [[nodiscard]] Status finish(const onnx::ModelProto& model);

 private:
  struct State;
  explicit ExternalDataWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace onnx_external
