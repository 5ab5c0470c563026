// Reads a written model back as an independent reader would, and lists everything that is wrong
// with it.
//
// Nothing that a model states is trusted: entries are checked as the strictest loaders check them,
// files are opened without following links, and lengths are compared with dims. A finding never
// stops the verification, so one run lists all findings. Memory: the model and its manifest, two
// buffers of at most 1 MiB per thread, and less than 64 MiB if transposed tensors are compared with
// a checkpoint. The functions keep no state and may run in several threads at once.
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
  kUnreadable,         // "unreadable": the system cannot open or read the file
  kOutOfRange,         // "out-of-range": offset + length past the end of the file
  kWrongLength,        // "wrong-length": length is not dims x element size
  kInlineAndExternal,  // "inline-and-external": an external tensor also has raw or typed data
  kDuplicateName,      // "duplicate-name": two initializers of one graph share a name
  kBytesDiffer,        // "bytes-differ": not the checkpoint's bytes; names the first difference
  kCrcDiffers,         // "crc-differs": not the CRC-32 that the manifest recorded
  kChecksumDiffers,    // "checksum-differs": not the SHA-1 that the model states for the file
  kTypeDiffers,        // "type-differs": element type or dims are not the checkpoint's
  kManifest,           // "manifest": the manifest is damaged or does not describe this model
  kNotInCheckpoint,    // "not-in-checkpoint": an initializer that no key fills (--against)
  kMissingTensor,      // "missing-tensor": the model lacks an initializer that it must have
  kModelChanged,       // "model-changed": the model file's CRC is not the manifest's
  kOpenSlot,           // "open-slot": a used name has no definition, or an initializer has no data
  kMixedSet,           // "mixed-set": models that belong together are from different saves
  kParentReplaced,     // "parent-replaced": the model that a piece was cut from was replaced
};
[[nodiscard]] std::string_view finding_code_name(FindingCode code);

struct Finding {
  FindingCode code = FindingCode::kBadEntry;
  std::string tensor;  // initializer name; empty = the model or the manifest as a whole
  std::string file;    // relative to the model's folder, as it is in the model
  std::string message;
};

// "code: 'tensor': 'file': message": a finding as a line of text.
[[nodiscard]] std::string finding_text(const Finding& finding);

struct VerifyReport {
  std::vector<Finding> findings;  // ordered by tensor, in graph order
  std::uint64_t tensors = 0;      // external tensors checked
  // The number of tensors inside the model that the manifest or the checkpoint also has, and how
  // many of these were compared with the checkpoint.
  std::uint64_t inline_tensors = 0;
  std::uint64_t inline_compared = 0;
  // The number of float initializers with data inside the model that could not be compared with
  // anything: if a checkpoint is given, with none of its tensors; otherwise neither with a manifest
  // record nor with the model's CRC-32.
  std::uint64_t inline_uncompared = 0;
  std::uint64_t bytes = 0;  // bytes read and compared
  // With a checkpoint: the number of `tensors` that were compared with it byte by byte, and the
  // number of these whose tensor only the manifest names.
  std::uint64_t compared = 0;
  std::uint64_t compared_by_manifest = 0;
  // The number of `tensors` that are ranges of the checkpoint itself rather than copies
  // (Layout::kLink). If a checkpoint is given, they are recognized by file and offset, otherwise by
  // the manifest. The second number counts those without a recorded CRC-32, for which only the
  // presence of the bytes was checked.
  std::uint64_t linked = 0;
  std::uint64_t linked_without_crc = 0;
  // Irregularities in external tensors that can still be read.
  std::vector<CountedRemark> remarks;
  // The number of `tensors` that state no length, or 0. The length is then taken from type and
  // dims, but other readers take the rest of the file or reject the model.
  std::uint64_t without_length = 0;
  std::uint64_t converted = 0;  // tensors in `compared` that were converted to the model's float
                                // type
  // The number of values that, according to the manifest, became infinite when they were converted
  // for this model.
  std::uint64_t overflowed = 0;
  bool used_manifest = false;
  std::vector<std::string> notes;  // Checkpoint::notes()
  std::uint64_t open_slots = 0;    // findings with kOpenSlot; not counted with OpenSlots::kAllow
  [[nodiscard]] bool ok() const { return findings.empty(); }
  [[nodiscard]] bool complete() const { return open_slots == 0; }  // all weights have data
};

// kYes: cached pages are dropped before reading, so that the bytes come from the disk.
enum class DropCache : std::uint8_t { kNo, kYes };

// How the model's bytes are compared with a checkpoint's.
enum class Compare : std::uint8_t {
  kBytes,  // both are read and compared
  // Reads half as much: if the CRC-32 of a tensor is known, from the checkpoint
  // (Checkpoint::recorded_crc) or from writing it (ExpectedTensor::written_crc), only the model is
  // read and must have that CRC-32. If it does not, the bytes are compared to find the first that
  // differs. Tensors without a known CRC-32 are compared as with kBytes.
  kRecordedCrc,
  // Reads no bytes of external tensors: each must refer to exactly the range of the checkpoint's
  // file that its tensor occupies. This is for linked models, before they are published.
  kPlaces,
};

// Decides whether weights without data are findings. kAllow is for models that were written with
// weights left open.
enum class OpenSlots : std::uint8_t { kReport, kAllow };

struct VerifyOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Compare compare = Compare::kBytes;
  OpenSlots open_slots = OpenSlots::kReport;
  DropCache drop_cache = DropCache::kNo;  // kYes asks the kernel to drop cached pages
  // Path of the manifest relative to the model's folder; empty = search for it.
  std::string manifest = {};
  ProgressFn progress;
};

// Checks structure (entries, paths, kinds of files, lengths, dims, open names) and, if there is a
// manifest with the data or next to the model, the CRC-32 of every tensor and of the model. Without
// a manifest only structure is checked; VerifyReport::used_manifest says which case it was. Fails
// only if it cannot verify at all: there is no such file, it is not an ONNX model, or the caller
// cancelled.
[[nodiscard]] Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                                const VerifyOptions& options = {});

// Finds the model that a path refers to: the file itself, the only *.onnx file in a folder, or the
// folder's "model.onnx" if it has several. Functions that take one model do the same. Errors:
// kNotFound if the folder has no model; kAmbiguous, with the names, if it has several and none is
// "model.onnx".
[[nodiscard]] Result<std::filesystem::path> find_model(const std::filesystem::path& path);
// Does the same, but returns all models in a folder if they were saved together as one set.
[[nodiscard]] Result<std::vector<std::filesystem::path>> find_models(
    const std::filesystem::path& path);

// The source of the claim that an initializer must equal a checkpoint tensor. The manifest is
// itself being verified, so it is only a hint; the report counts the tensors for which it is the
// only source. kModel: the tensor's data came with the loaded model, not from the checkpoint
// (PlannedTensor::existing_index). The element type and shape of such a tensor may differ from
// those in the model, if the number of bytes is equal.
enum class ExpectedBy : std::uint8_t { kMapping, kManifest, kModel };

// One initializer and the checkpoint tensor that it must equal.
struct ExpectedTensor {
  std::string initializer;
  std::uint32_t graph = 0;
  std::size_t tensor = 0;  // index into Checkpoint::tensors()
  ExpectedBy by = ExpectedBy::kMapping;
  Casts casts =
      Casts::kRefuse;  // kAllow: converted to the initializer's type if that is a float type
  // The tensor that the manifest names instead, if its bytes differ; reported as a finding.
  std::optional<std::size_t> disputed = {};
  Recipe recipe = {};  // how the initializer's bytes are made from the tensor's
  // The CRC-32 of the bytes as they were written, which the save itself provides. With
  // Compare::kRecordedCrc it is used like a CRC-32 that the checkpoint records.
  std::optional<std::uint32_t> written_crc = {};
  TensorPlace place = TensorPlace::kInitializer;  // where `initializer` is in its graph
  std::optional<PackedTensor> packed = {};        // set for a part of the quantized tensor
};

// Does what verify_model() does, and compares every byte, type and dimension of the expected
// initializers (external or inline) with the checkpoint. An external initializer that is not
// expected is a finding unless the manifest says that it came with the given graph; `compared` does
// not count it. If an exporter merged equal weights, an expected initializer is followed through
// Identity nodes to the shared weight, which is compared. Also fails if the checkpoint cannot be
// read or changes during the call.
[[nodiscard]] Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                                        const Checkpoint& checkpoint,
                                                        std::span<const ExpectedTensor> expected,
                                                        const VerifyOptions& options = {});

// A model that is verified together with others.
struct ModelToVerify {
  std::filesystem::path path;
  std::span<const ExpectedTensor> expected = {};  // with a checkpoint; must outlive the call
  std::string manifest = {};                      // like VerifyOptions::manifest, which is ignored
  // The folder that locations of linked files are relative to, if it is not the model's folder: a
  // staged model that links files is read before it is moved next to them. If set, linked ranges
  // are only compared by file and offset (Compare::kPlaces), whatever the options say about other
  // tensors.
  std::filesystem::path linked_folder = {};
};

// Does what verify_model() and verify_model_against() do (`checkpoint` may be null) for several
// models. Each model is opened and its entries are checked, but bytes that several models share are
// read only once. Returns one report for each model, in order; VerifyReport::bytes counts shared
// bytes in each report.
[[nodiscard]] Result<std::vector<VerifyReport>> verify_models(
    std::span<const ModelToVerify> models, const Checkpoint* checkpoint = nullptr,
    const VerifyOptions& options = {});

// Returns the tensors that a model written by a plan must hold: every initializer that the plan
// takes from the checkpoint. `model` is the one that was planned. With `range_crcs`
// (StagedSave::range_crcs()), tensors that were rearranged or converted while they were written
// need not be computed again (Compare::kRecordedCrc). Tensors that were rearranged from memory are
// always computed again, because the memory may have changed. Tensors that the caller's function
// makes (provided_tensors.h) cannot be compared without `range_crcs` and StagedSave::inline_crcs().
// `model_index`: the index of the model in SavePlan::models, if there are several.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(
    const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
    std::span<const std::uint32_t> range_crcs = {},
    const std::map<std::size_t, std::uint32_t>& inline_crcs = {}, std::uint32_t model_index = 0);

// Adds the derived tensors that `options` define. If `options` choose no pairs (see below), adds
// those that the model's manifest records, as far as the checkpoint has their keys. Call this
// before expected_tensors(). Errors are those of add_derived_tensors().
[[nodiscard]] Status add_derived_tensors_of(const std::filesystem::path& model_path,
                                            const MappingOptions& options, Checkpoint& checkpoint,
                                            std::uint64_t max_expand = OpenOptions{}.max_expand);

// Determines what a saved model's initializers should be, by mapping again. If the mapping has no
// answer, the manifest's record is used, provided that `options` choose no pairs (match, prefix,
// renames, derived, map) and the checkpoint has all tensors that the manifest names. Errors are
// those of Model::load() and map_tensors(): the mapping must succeed with `options` or, if the
// record may be used, with `options` and those of the save together.
[[nodiscard]] Result<std::vector<ExpectedTensor>> expected_tensors(
    const std::filesystem::path& model_path, const Checkpoint& checkpoint,
    const MappingOptions& options);

}  // namespace onnx_external
