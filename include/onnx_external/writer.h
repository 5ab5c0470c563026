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

// With kOn, all written data is read back and verified before it is published.
enum class Verification : std::uint8_t { kOff, kOn };
enum class Sync : std::uint8_t { kNone, kFiles };  // kFiles: fsync data, model and folders
enum class Overwrite : std::uint8_t { kRefuse, kAllow };
enum class Resume : std::uint8_t { kNo, kYes };
enum class Checksum : std::uint8_t { kNone, kSha1 };  // of each data file, stated in external_data

struct WriteOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  Checksum checksum = Checksum::kNone;
  // With kYes, a killed save that had the same plan and the same, unchanged files is resumed.
  // Ranges that it wrote are read again, and are kept if their CRC-32 is correct. The output is the
  // same with kNo.
  Resume resume = Resume::kYes;
  MatchedInputs inputs = MatchedInputs::kRemove;
  ProgressFn progress;
  // The processes that write the plan together (team.h), or null if this process works alone.
  // Killed saves of a team are not resumed.
  const Team* team = nullptr;
};

// Describes the values of a tensor that became infinite when they were converted to a smaller float
// type.
struct Overflow {
  std::uint64_t values = 0;  // finite values that became infinite
  double largest = 0;        // the largest magnitude among them
};

// Facts about the models and data that a save has written.
struct WrittenSave {
  // The CRC-32 of each planned range, in the order of SavePlan::ranges; empty with Layout::kLink.
  std::vector<std::uint32_t> range_crcs;
  // The CRC-32 of each planned tensor without a range, by index into SavePlan::tensors. In a team,
  // it is empty in all processes except the leader.
  std::map<std::size_t, std::uint32_t> inline_crcs;
  // The converted tensors in which values became infinite, by index into SavePlan::tensors. In a
  // team, these are only tensors in ranges that this process wrote. Tensors whose bytes are
  // produced on demand are left out.
  std::map<std::size_t, Overflow> overflows;
  // The quantization error (SavedMatrix::error) of each matrix whose codes this process computed,
  // by the index of the range with the codes.
  std::map<std::uint32_t, double> quantization_errors;
  // The number of bytes of the data files that a killed save had already written.
  std::uint64_t bytes_resumed = 0;
};

// Data files of replaced models that were not removed.
struct KeptData {
  // Files to which another model in the folder refers, each with the name of one such model.
  std::vector<std::pair<std::string, std::string>> for_models;
  std::vector<std::string> of_other_tools;  // files that another tool wrote
};

// One or more models and their data, complete in a staging folder inside the output folder, but not
// yet visible under their final names. Destroying this object without publish() removes everything
// that was written. Until this object is destroyed, the output folder is locked, and another save
// into this folder fails immediately with kBusy. The object may be used by one thread at a time.
class StagedSave {
 public:
  StagedSave(StagedSave&&) noexcept;
  StagedSave& operator=(StagedSave&&) noexcept;
  ~StagedSave();

  // Returns the staging folder. It contains the model file and its data under their final relative
  // names. A loader can therefore open the model there, unless its data is linked.
  [[nodiscard]] const std::filesystem::path& directory() const;
  // Returns the path of a model in the staging folder. `model_index` is its index in
  // SavePlan::models.
  [[nodiscard]] std::filesystem::path model_path(std::size_t model_index = 0) const;
  // Returns the path of a model's manifest, relative to directory(). In a team, it is empty in all
  // processes except the leader.
  [[nodiscard]] std::string manifest_location(std::size_t model_index = 0) const;

  // Returns facts about what was written.
  [[nodiscard]] const WrittenSave& written() const;

  // Renames the data folder or files, then the model, to their final names, and removes the data of
  // a replaced model. The save is complete only if this call succeeds. In a team only the leader
  // publishes, and the status of its call is the status of the save. Several models are renamed one
  // by one. If an error or a kill interrupts this, the next save into the folder renames the
  // remaining models.
  [[nodiscard]] Status publish();

  // Returns, after publish(), the data files of replaced models that were not removed. In a team,
  // it is empty in all processes except the leader.
  [[nodiscard]] const KeptData& kept_data() const;

 private:
  friend struct StagedSaveAccess;
  struct State;
  explicit StagedSave(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Writes everything in `plan` into a new staging folder in `out_dir` (created if missing): the
// models, in the order of SavePlan::models, and their data. Free space and limits on names and
// sizes are checked first. If the call fails, it removes everything that it wrote.
//
// With Layout::kLink only the model and its manifest are written, and only tensors that stay inline
// are read.
//
// Errors:
// - kCorrupt if a source is damaged.
// - kInvalidArgument for a checksum with kLink, because whole files would have to be read.
// - kInvalidArgument for a team if tensors are not in files.
// - kAlreadyExists, kBusy, kCancelled, kIo.
[[nodiscard]] Result<StagedSave> write_plan(const SavePlan& plan, std::span<const Model> models,
                                            const Checkpoint& checkpoint,
                                            const std::filesystem::path& out_dir,
                                            const WriteOptions& options);
// Writes the plan of a single model, like the function above.
[[nodiscard]] inline Result<StagedSave> write_plan(const SavePlan& plan, const Model& model,
                                                   const Checkpoint& checkpoint,
                                                   const std::filesystem::path& out_dir,
                                                   const WriteOptions& options) {
  return write_plan(plan, std::span(&model, 1), checkpoint, out_dir, options);
}

struct WriterOptions {
  std::string data_dir = "initializers";
  Sync sync = Sync::kFiles;
  Overwrite overwrite = Overwrite::kRefuse;
  Layout layout = Layout::kPerTensor;                 // or kSingle, kShards
  std::string data_name = {};                         // as in PlanOptions
  std::optional<std::uint64_t> max_shard_bytes = {};  // as in PlanOptions
  std::optional<std::uint64_t> alignment = {};
  // With kOn, finish() reads all data back and compares it with the CRC-32s that add() computed.
  Verification verification = Verification::kOn;
  // With kAllow, finish() accepts a model that lacks weights, although no runtime can open such a
  // model.
  Partial partial = Partial::kRefuse;
  int threads = 0;  // used by finish(); 0 = one per CPU available to the process
  // While tensors are added, Progress::bytes_total is 0, and the function is called from the
  // threads that call add().
  ProgressFn progress = {};
};

// Writes a model whose tensors an exporter produces one by one. Call add() for each tensor from any
// thread, then finish() once.
//
//   const std::array<std::int64_t, 2> shape{10, 4};
//   auto writer = Writer::create("out/model.onnx");  // check for an error before using ->
//   auto added = writer->add("fc.weight", DType::kFloat32, shape, bytes);
//   auto status = writer->finish(model);
//
// The writer keeps no tensor bytes in memory; when add() returns, they are in the file. Destroying
// the writer without calling finish() removes everything that was written. Tied tensors are not
// recognized: each add() stores its tensor again.
//
// With kPerTensor the output does not depend on the order of the add() calls, because the name of a
// file depends only on the name of its tensor. A tensor name that is safe on every file system and
// has no upper-case letter is used unchanged. Any other name is escaped, shortened, and followed by
// "-" and 16 hex digits of its SHA-256. With kSingle and kShards each tensor gets the next free
// offset when its add() begins. Calls from one thread therefore always produce the same files, but
// with concurrent calls the files depend on the order in which the calls begin.
//
// Until the writer has finished or is destroyed, its folder is locked, and another save into this
// folder, in this process or another, fails immediately with kBusy.
class Writer {
 public:
  // Creates a writer for the model file `model`, whose folder is created if it is missing. Fails
  // with kInvalidArgument for a name that does not end with ".onnx", for the layouts kInline and
  // kLink, and for an alignment out of range. Other errors are kBusy and those of plan_save() for
  // names and existing files.
  [[nodiscard]] static Result<Writer> create(const std::filesystem::path& model,
                                             const WriterOptions& options = {});
  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  // Writes one tensor (contiguous, row-major, little-endian) and returns the initializer that
  // refers to it, which finish() puts into the model. The data of tensors without elements and of
  // small integer tensors (kMaxInlineIntegerBytes) stays in the initializer. With kShards the
  // initializer refers to a provisional file name, which finish() replaces. Thread-safe. Fails with
  // kInvalidArgument for a name that was added before or is not UTF-8, and for a wrong number of
  // bytes. After an error the name may be added again. With kSingle and kShards, the range that was
  // reserved for the failed tensor remains a hole. After kCancelled every further add() fails, and
  // finish() or the destructor removes everything that was written and unlocks the folder.
  [[nodiscard]] Result<onnx::TensorProto> add(std::string_view name, DType dtype,
                                              std::span<const std::int64_t> shape,
                                              std::span<const std::byte> bytes);

  // Writes a tensor with any source and strides (provided_tensors.h), like the other overload. The
  // source is not used after the call returns. Bytes that are produced on demand are produced in
  // the calling thread. A strided tensor needs up to 18 MiB of memory. Errors also as for
  // checkpoint_of().
  [[nodiscard]] Result<onnx::TensorProto> add(ProvidedTensor tensor);

  // Makes each tensor that was added an initializer of the main graph: if the graph has an
  // initializer of that name, its data is replaced; otherwise one is appended, in the order of the
  // names. Inputs of that name are removed (from IR version 4 on). Then verifies the written data,
  // writes the model and its manifest, and publishes the model and its data. No add() may run at
  // the same time.
  //
  // After these errors, finish() may be called again with a corrected model:
  // - kMismatch if the graph states another type or shape for a tensor that was added, or if a node
  //   reads weights whose types or shapes it does not accept.
  // - kInvalidArgument if the model has other external data.
  // - kNotFound, with a list, if the model lacks weights (names that nothing defines, initializers
  //   without data).
  //
  // After these errors, everything that was written is removed:
  // - kMismatch if the bytes on the disk differ from those that were written. The message names the
  //   tensor.
  // - kIo, kCancelled.
  //
  // After these errors, and after success, every further call fails with kInvalidArgument.
  [[nodiscard]] Status finish(onnx::ModelProto model);
  // Finishes with a loaded model, which must already have the initializers that add() returned
  // (otherwise kInvalidArgument). The model's other tensors may have their data in the file from
  // which it was loaded.
  [[nodiscard]] Status finish(const Model& model);

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  [[nodiscard]] Status check_is_open() const;

  std::unique_ptr<State> state_;  // null once the writer has finished
};

}  // namespace onnx_external
