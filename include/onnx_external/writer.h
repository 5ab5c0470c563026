// Carries out the plan of a save: writes the model and its data into a staging folder, in parallel
// and at fixed offsets, then publishes the files by renaming them, the model last.
//
// No file is opened for writing under its final name, so a save may read the files that it
// replaces. The output bytes do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
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

struct ProvidedTensor;  // provided_tensors.h

// kOn: everything that was written is read back before it is published.
enum class Verification : std::uint8_t { kOff, kOn };
enum class Sync : std::uint8_t { kNone, kFiles };  // kFiles: fsync data, model and folders
enum class Overwrite : std::uint8_t { kRefuse, kAllow };
enum class Resume : std::uint8_t { kNo, kYes };
enum class Checksum : std::uint8_t { kNone, kSha1 };  // in external_data, for each data file

struct WriteOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  Checksum checksum = Checksum::kNone;
  // kYes: a killed save with the same plan and the same, unchanged files is resumed: ranges that it
  // wrote are read again, and are not rewritten if their CRC-32 is right. The output is the same in
  // both cases.
  Resume resume = Resume::kYes;
  MatchedInputs inputs = MatchedInputs::kRemove;
  ProgressFn progress;
  // Processes that write the plan together (team.h); null = this process alone. Killed saves of a
  // team are not resumed.
  const Team* team = nullptr;
};

// The values of one tensor that a conversion to a smaller float type made infinite.
struct Overflow {
  std::uint64_t values = 0;  // finite values that became infinite
  double largest = 0;        // the largest magnitude among them
};

// One or more models and their data, complete in a staging folder inside the output folder, but not
// yet visible under their final names. Destroying this object without publish() removes everything
// that was written. Until it is destroyed, the output folder is locked: another save into this
// folder fails at once with kBusy. For one thread at a time.
class StagedSave {
 public:
  StagedSave(StagedSave&&) noexcept;
  StagedSave& operator=(StagedSave&&) noexcept;
  ~StagedSave();

  // The staging folder. It contains the model file and its data under their final relative names,
  // so a loader can open the model there, unless its data is linked.
  [[nodiscard]] const std::filesystem::path& directory() const;
  // `model_index`: the index of the model in SavePlan::models, if there are several.
  [[nodiscard]] std::filesystem::path model_path(std::size_t model_index = 0) const;
  // Relative to directory(); in a team, empty for all but the leader.
  [[nodiscard]] std::string manifest_location(std::size_t model_index = 0) const;

  // The CRC-32 of each planned range, by index into SavePlan::ranges; empty with Layout::kLink.
  [[nodiscard]] const std::vector<std::uint32_t>& range_crcs() const;

  // The CRC-32 of each planned tensor that has no range, by index into SavePlan::tensors. In a
  // team, empty for all but the leader.
  [[nodiscard]] const std::map<std::size_t, std::uint32_t>& inline_crcs() const;

  // Converted tensors in which values became infinite, by index into SavePlan::tensors. In a team,
  // only tensors in ranges that this process wrote. Tensors that a function of the caller makes are
  // left out.
  [[nodiscard]] const std::map<std::size_t, Overflow>& overflows() const;

  // The quantization error (SavedMatrix::error) of each matrix whose codes this process made, by
  // the index of the codes' range.
  [[nodiscard]] const std::map<std::uint32_t, double>& quantization_errors() const;

  // The number of bytes of the data files that a killed save had already written.
  [[nodiscard]] std::uint64_t bytes_resumed() const;

  // Renames the data folder or files, then the model, to their final names, and removes the data of
  // a replaced model. The save is complete only if this succeeds. In a team only the leader
  // publishes, and the status of its call is the status of the save. Several models are renamed one
  // by one. If an error or a kill interrupts this, the next save into the folder renames the
  // remaining ones.
  [[nodiscard]] Status publish();

  // After publish(): data files of the replaced model that were not removed, because another model
  // in the folder refers to them, each with the name of one such model. In a team, empty for all
  // but the leader.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> data_left_for() const;

  // After publish(): data files of replaced models that were not removed, because another tool
  // wrote them.
  [[nodiscard]] std::vector<std::string> data_of_other_tools() const;

 private:
  friend struct StagedSaveAccess;
  struct State;
  explicit StagedSave(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Writes everything in `plan` into a new staging folder in `out_dir` (created if missing): the
// models, in the order of SavePlan::models, and their data. Free space and limits on names and
// sizes are checked first. After an error nothing is left behind.
//
// With Layout::kLink only the model and its manifest are written, and only tensors that stay inline
// are read.
//
// Errors: kIo; kBusy; kCorrupt if a source is damaged; kCancelled; kAlreadyExists; kInvalidArgument
// for a checksum with kLink, because whole files would have to be read, and for a team and tensors
// that are in no file.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            const WriteOptions& options);
// Does the same for a single model.
[[nodiscard]] inline Result<StagedSave> write_plan(const SavePlan& plan, const Model& model,
                                                   const Checkpoint& checkpoint,
                                                   const std::filesystem::path& out_dir,
                                                   const WriteOptions& options) {
  return write_plan(plan, std::span(&model, 1), checkpoint, out_dir, options);
}

// Writes a model for exporters that produce their tensors one by one and free them: call add() for
// each tensor from any thread, then finish() once.
//
//   auto writer = ExternalDataWriter::open("out", {});
//   const std::array<std::int64_t, 2> shape{10, 4};
//   auto proto = (*writer)->add("fc.weight", DType::kFloat32, shape, bytes);
//   *model.mutable_graph()->add_initializer() = *proto;
//   auto status = (*writer)->finish(model);
//
// The writer keeps no tensor bytes in memory: add() returns once they are in the file. Destroying
// the writer without finish() removes everything that was written. Tied tensors are stored as often
// as they are added.
//
// With kPerTensor the output does not depend on the order of the add() calls: the name of a file
// depends only on its tensor's name. It is the tensor's name if that is safe on every file system
// and has no upper-case letter, otherwise "<escaped, cut>-<16 hex digits of its SHA-256>". With
// kSingle and kShards each tensor gets the next free offset when its add() begins, before its bytes
// are written. So calls from one thread always give the same files, but for calls that run at the
// same time the result depends on the order in which they begin.
//
// Until the writer has finished or is destroyed, its folder is locked: another save into this
// folder, in this process or another, fails at once with kBusy.
class ExternalDataWriter {
 public:
  struct Options {
    std::string model_name = "model.onnx";
    std::string data_dir = "initializers";
    Sync sync = Sync::kFiles;
    Overwrite overwrite = Overwrite::kRefuse;
    Layout layout = Layout::kPerTensor;                 // or kSingle, kShards
    std::string data_name = {};                         // this and the next two: see PlanOptions
    std::optional<std::uint64_t> max_shard_bytes = {};  // as in PlanOptions
    std::optional<std::uint64_t> alignment = {};
    // kOn: finish() reads everything back and compares the CRC-32s that add() computed.
    Verification verification = Verification::kOn;
    // kAllow: finish() accepts a model that lacks weights, although no runtime can open it.
    Partial partial = Partial::kRefuse;
    int threads = 0;  // used by finish(); 0 = one per CPU available to the process
    // While tensors are added, bytes_total is 0 and calls come from the threads of add().
    ProgressFn progress = {};
  };
  ~ExternalDataWriter();

  // Errors: kInvalidArgument for kInline, kLink and an alignment out of range; kBusy; errors of
  // plan_save() for names and existing files.
  [[nodiscard]] static Result<std::unique_ptr<ExternalDataWriter>> open(
      const std::filesystem::path& out_dir, const Options& options);

  // Writes one tensor (contiguous, row-major, little-endian) and returns the initializer that
  // refers to it. The data of tensors without elements and of small integer tensors
  // (kMaxInlineIntegerBytes) stays in the initializer. With kShards the initializer refers to a
  // provisional file name, which finish() replaces. Thread-safe. Fails with kInvalidArgument for a
  // name that was added before or is not UTF-8, and for a wrong number of bytes. After an error the
  // name may be added again; with kSingle and kShards the range that was reserved for the tensor
  // remains a hole. After kCancelled no add() continues: finish() or the destructor removes what
  // was written and unlocks the folder.
  [[nodiscard]] Result<onnx::TensorProto> add(std::string_view name, DType dtype,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::byte> bytes);

  // Does the same for a tensor with any source and strides (provided_tensors.h), which is not used
  // after the call returns. Bytes that are produced on demand are produced in this thread. A
  // strided tensor takes up to 18 MiB of memory. Errors also as for checkpoint_of().
  [[nodiscard]] Result<onnx::TensorProto> add(ProvidedTensor tensor);

  // Verifies what was written, writes the model and its manifest, then publishes. No add() may run
  // at the same time. Errors: kInvalidArgument if a tensor that was added is not an initializer of
  // `model`, or the model has other external data; kNotFound, with a list, if the model lacks
  // weights (names that nothing defines, initializers without data); kMismatch if a node reads
  // weights whose types or shapes it does not accept. After these errors finish() may be called
  // again, with a model that fits. Other errors: kMismatch if the bytes on the disk are not those
  // that were written (the message names the tensor); kIo; kCancelled. After these errors,
  // everything that was written is removed, and every further call fails with kInvalidArgument, as
  // it also does after success.
  [[nodiscard]] Status finish(const onnx::ModelProto& model);
  // Does the same with a loaded model, whose other tensors may have their data in the file that it
  // was loaded from.
  [[nodiscard]] Status finish(const Model& model);

 private:
  struct State;
  explicit ExternalDataWriter(std::unique_ptr<State> state);
  [[nodiscard]] Status check_is_open() const;

  std::unique_ptr<State> state_;  // null once the writer has finished
};

// A simpler interface to ExternalDataWriter, for a model whose graph is known without its weights:
//
//   const std::array<std::int64_t, 2> shape{10, 4};
//   auto writer = Writer::create("out/model.onnx");  // an error must be looked at before ->
//   auto added = writer->add("fc.weight", DType::kFloat32, shape, bytes);
//   auto status = writer->finish(model);
//
// It keeps the initializers that ExternalDataWriter::add() returns, and finish() puts them into the
// model. In all other respects it behaves like ExternalDataWriter: for example, it locks its
// folder, and it may be destroyed without finish().
class Writer {
 public:
  // `model`: the file of the model; its folder is created if it is missing. The options are those
  // of ExternalDataWriter, except for the model's name, which is ignored. Fails with
  // kInvalidArgument for a name that does not end with ".onnx".
  [[nodiscard]] static Result<Writer> create(const std::filesystem::path& model,
                                             ExternalDataWriter::Options options = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  // Does the same as ExternalDataWriter::add(). Thread-safe.
  [[nodiscard]] Status add(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                           std::span<const std::byte> bytes);
  [[nodiscard]] Status add(ProvidedTensor tensor);

  // Makes each tensor that was added an initializer of the main graph, then does the same as
  // ExternalDataWriter::finish(). If the graph has an initializer of that name without data, it is
  // filled; initializers that the graph lacks are appended in the order of their names. Fails with
  // kMismatch if an initializer of that name has a different type or shape; finish() may also be
  // called again after this error.
  [[nodiscard]] Status finish(onnx::ModelProto model);

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace onnx_external
