// Verifies a written model: reads it back as an independent reader would, and lists all faults.
//
// The verification does not trust what the model states. It checks entries as strictly as the
// strictest loaders, opens files without following links, and compares lengths with dims. It
// continues after each finding, so one run lists all findings. Memory use is the size of the model
// and its manifest, two buffers of at most 1 MiB per thread, and less than 64 MiB if transposed
// tensors are compared with a checkpoint. The functions have no shared state and may run in several
// threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The kinds of findings; finding_code_name() returns the stable name used in JSON.
enum class FindingCode : std::uint8_t {
  kBadEntry,           // "bad-entry": external_data keys or values break the rules
  kBadLocation,        // "bad-location": the path is absolute, leaves the folder, contains ".." ...
  kMissingFile,        // "missing-file"
  kBadFileKind,        // "bad-file-kind": symlink, hard link, FIFO, folder ...
  kUnreadable,         // "unreadable": the file cannot be opened or read
  kOutOfRange,         // "out-of-range": offset + length past the end of the file
  kWrongLength,        // "wrong-length": length is not dims x element size
  kInlineAndExternal,  // "inline-and-external": an external tensor also has raw or typed data
  kDuplicateName,      // "duplicate-name": two initializers of one graph share a name
  kBytesDiffer,        // "bytes-differ": differs from the checkpoint; states the first difference
  kCrcDiffers,         // "crc-differs": differs from the CRC-32 in the manifest
  kChecksumDiffers,    // "checksum-differs": differs from the SHA-1 that the model states
  kTypeDiffers,        // "type-differs": element type or dims differ from the checkpoint
  kManifest,           // "manifest": the manifest is damaged or does not describe this model
  kNotInCheckpoint,    // "not-in-checkpoint": an initializer that no key fills (--against)
  kMissingTensor,      // "missing-tensor": the model lacks an expected initializer
  kModelChanged,       // "model-changed": the model file's CRC-32 differs from the manifest
  kOpenSlot,           // "open-slot": a used name has no definition, or an initializer has no data
  kMixedSet,           // "mixed-set": models with common data are from different saves
  kParentReplaced,     // "parent-replaced": the model that a piece was cut from was replaced
};
[[nodiscard]] std::string_view finding_code_name(FindingCode code);

struct Finding {
  FindingCode code = FindingCode::kBadEntry;
  std::string tensor;  // initializer; empty if the finding is about the whole model or manifest
  std::string file;    // as the model states it, relative to the model's folder
  std::string message;
};

// Returns a finding as a line of text: "code: 'tensor': 'file': message".
[[nodiscard]] std::string finding_text(const Finding& finding);

struct VerifyReport {
  std::vector<Finding> findings;  // ordered by tensor, in graph order
  std::uint64_t tensors = 0;      // external tensors checked
  // `inline_tensors` is the number of tensors inside the model that are also in the manifest or the
  // checkpoint. `inline_compared` is the number of these that were compared with the checkpoint.
  std::uint64_t inline_tensors = 0;
  std::uint64_t inline_compared = 0;
  // The number of float initializers inside the model that could not be checked. If a checkpoint is
  // given, these are the initializers that were not compared with it. Otherwise, they are the
  // initializers for which there is neither a record in the manifest nor a CRC-32 of the model.
  std::uint64_t inline_uncompared = 0;
  std::uint64_t bytes = 0;  // bytes read and compared
  // If a checkpoint is given, `compared` is the number of external tensors that were compared with
  // it byte by byte. `compared_by_manifest` is the number of these for which only the manifest
  // states the checkpoint tensor.
  std::uint64_t compared = 0;
  std::uint64_t compared_by_manifest = 0;
  // `linked` is the number of external tensors whose data is in the checkpoint's own files
  // (Layout::kLink). If a checkpoint is given, such tensors are recognized by file and offset,
  // otherwise by the manifest. `linked_without_crc` is the number of these without a recorded
  // CRC-32. For them, the verification only checked that the bytes are present.
  std::uint64_t linked = 0;
  std::uint64_t linked_without_crc = 0;
  // Irregularities in external tensors that can still be read.
  std::vector<CountedRemark> remarks;
  // The number of external tensors whose stated length is missing or 0. This library computes the
  // length from type and dims, but other readers use the rest of the file or reject the model.
  std::uint64_t without_length = 0;
  std::uint64_t converted = 0;  // tensors in `compared` that were converted to the model's float
                                // type
  // The number of values that became infinite when the save converted them, according to the
  // manifest.
  std::uint64_t overflowed = 0;
  bool used_manifest = false;
  std::vector<std::string> notes;  // Checkpoint::notes()
  std::uint64_t open_slots = 0;    // number of kOpenSlot findings; 0 with OpenSlots::kAllow
  [[nodiscard]] bool ok() const { return findings.empty(); }
  [[nodiscard]] bool complete() const { return open_slots == 0; }  // all weights have data
};

// With kYes, cached pages are dropped before reading, so that the bytes are read from the disk.
enum class DropCache : std::uint8_t { kNo, kYes };

// Decides how the bytes of the model are compared with the bytes of a checkpoint.
enum class Compare : std::uint8_t {
  kBytes,  // both are read and compared
  // If the CRC-32 of a tensor is known, only the model's bytes are read, which halves the number of
  // bytes read. The CRC-32 is known from the checkpoint (Checkpoint::recorded_crc) or from writing
  // the tensor (ExpectedTensor::written_crc). If the model's bytes have another CRC-32, the bytes
  // are compared to find the first that differs. Tensors without a known CRC-32 are compared as
  // with kBytes.
  kRecordedCrc,
  // No bytes of external tensors are read. Each external tensor must refer to exactly the range
  // that its tensor occupies in the checkpoint's file. This is for linked models, before they are
  // published.
  kPlaces,
};

// Decides whether weights without data are findings. kAllow is for models that were saved without
// some of their weights.
enum class OpenSlots : std::uint8_t { kReport, kAllow };

struct VerifyOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Compare compare = Compare::kBytes;
  OpenSlots open_slots = OpenSlots::kReport;
  DropCache drop_cache = DropCache::kNo;  // kYes is only a request to the kernel
  // Path of the manifest relative to the model's folder; empty = search for it.
  std::string manifest = {};
  ProgressFn progress;
};

// Checks structure (entries, paths, kinds of files, lengths, dims, open names) and, if there is a
// manifest with the data or next to the model, the CRC-32 of every tensor and of the model. Without
// a manifest only structure is checked; VerifyReport::used_manifest states whether there was one.
// Fails only if nothing can be verified: the file does not exist or is not an ONNX model, or the
// caller cancelled.
[[nodiscard]] Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                                const VerifyOptions& options = {});

// Returns the path of the model file for a file or a folder. A file is returned unchanged. For a
// folder, the result is its only *.onnx file, or its "model.onnx" if there are several. Functions
// that take one model find it in this way. Fails with kNotFound if the folder has no model. If the
// folder has several models and none is "model.onnx", fails with kAmbiguous and lists the names.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::filesystem::path& path);
// Works like find_model(), but returns all models in a folder if they were saved together as one
// set.
[[nodiscard]] Result<std::vector<std::filesystem::path>> find_models(
    const std::filesystem::path& path);

// The reason why an initializer is expected to equal a checkpoint tensor. With kManifest, the
// manifest states the tensor. Because the manifest is also being verified, the report counts the
// tensors for which it is the only source. With kModel, the data came with the loaded model
// (PlannedTensor::existing_index). The element type and shape of such a tensor may differ from
// those in the model if the number of bytes is equal.
enum class ExpectedBy : std::uint8_t { kMapping, kManifest, kModel };

// One initializer and the checkpoint tensor that it must equal.
struct ExpectedTensor {
  std::string initializer;
  std::uint32_t graph = 0;
  std::size_t tensor = 0;  // index into Checkpoint::tensors()
  ExpectedBy by = ExpectedBy::kMapping;
  Casts casts =
      Casts::kRefuse;  // kAllow: converted to the initializer's type, if that is a float type
  // The different tensor that the manifest states, if any. If the bytes of both tensors differ,
  // this is a finding.
  std::optional<std::size_t> disputed = {};
  Recipe recipe = {};  // the steps that compute the initializer from the tensor
  // The CRC-32 of the bytes, computed when the save wrote them. With Compare::kRecordedCrc, it is
  // used like a CRC-32 that the checkpoint records.
  std::optional<std::uint32_t> written_crc = {};
  TensorPlace place = TensorPlace::kInitializer;  // the part of the graph that holds `initializer`
  std::optional<PackedTensor> packed = {};        // set for a part of the quantized tensor
};

// Performs the checks of verify_model(), and compares every byte, type and dimension of the
// expected initializers (external or inline) with the checkpoint. An external initializer that is
// not expected is a finding unless the manifest says that it came with the given graph; `compared`
// does not count it. If an exporter merged equal weights, an expected initializer is followed
// through Identity nodes to the shared weight, which is compared. Also fails if the checkpoint
// cannot be read or changes during the call.
[[nodiscard]] Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                                        const Checkpoint& checkpoint,
                                                        std::span<const ExpectedTensor> expected,
                                                        const VerifyOptions& options = {});

// A model that is verified together with others.
struct ModelToVerify {
  std::filesystem::path path;
  std::span<const ExpectedTensor> expected = {};  // with a checkpoint; must outlive the call
  std::string manifest = {};                      // like VerifyOptions::manifest, which is ignored
  // The folder to which the locations of linked files are relative, if this is not the model's
  // folder. It is needed for a staged model, which is verified before it is moved next to the
  // linked files. If set, linked ranges are compared only by file and offset (Compare::kPlaces),
  // regardless of VerifyOptions::compare.
  std::filesystem::path linked_folder = {};
};

// Verifies several models, like verify_model_against() or, if `checkpoint` is null, verify_model().
// Bytes that several models share are read only once. Returns one report for each model, in order.
// VerifyReport::bytes counts shared bytes in each report.
[[nodiscard]] Result<std::vector<VerifyReport>> verify_models(
    std::span<const ModelToVerify> models, const Checkpoint* checkpoint = nullptr,
    const VerifyOptions& options = {});

// Returns the tensors that a model written by a plan must contain, which are all initializers that
// the plan takes from the checkpoint. `model` is the model for which the plan was made. If
// `range_crcs` (WrittenSave::range_crcs) is given, tensors that were rearranged or converted while
// they were written need not be computed again (Compare::kRecordedCrc). Tensors that were
// rearranged from memory are always computed again, because the memory may have changed. Tensors
// whose bytes are produced on demand (provided_tensors.h) cannot be compared without `range_crcs`
// and WrittenSave::inline_crcs. `model_index` is the index of the model in SavePlan::models.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(
    const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
    std::span<const std::uint32_t> range_crcs = {},
    const std::map<std::size_t, std::uint32_t>& inline_crcs = {}, std::uint32_t model_index = 0);

// Adds the derived tensors that `options` define. If `options` choose no pairs (see
// expected_tensors() below), adds the derived tensors in the model's manifest whose keys are in the
// checkpoint. Call this before expected_tensors(). Errors are those of add_derived_tensors().
[[nodiscard]] Status add_derived_tensors_of(const std::filesystem::path& model_path,
                                            const MappingOptions& options, Checkpoint& checkpoint,
                                            std::uint64_t max_expand = OpenOptions{}.max_expand);

// Determines the expected contents of a saved model's initializers by mapping the checkpoint again.
// For initializers that the mapping leaves open, the manifest is used. This requires that `options`
// choose no pairs (match, prefix, renames, derived, map) and that the checkpoint has all tensors
// that the manifest names. The mapping must succeed with `options` or, if the manifest may be used,
// with these options combined with the options of the save. Errors are those of Model::load() and
// map_tensors().
[[nodiscard]] Result<std::vector<ExpectedTensor>> expected_tensors(
    const std::filesystem::path& model_path, const Checkpoint& checkpoint,
    const MappingOptions& options);

}  // namespace onnx_external
