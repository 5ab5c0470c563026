// Reads a written model back as an independent reader would, and lists what is wrong with it.
//
// Nothing that a model states is trusted: entries are checked as the strictest loaders check them,
// files are opened without following links, and lengths are compared with dims. A finding never
// stops the work, so one run lists them all. Memory: the model and its manifest, two buffers of at
// most 1 MiB per thread, and less than 64 MiB if transposed tensors are compared with a checkpoint.
// The functions keep no state and may run in several threads at once.
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
  kBadLocation,        // "bad-location": the path is absolute, leaves the folder, has ".." ...
  kMissingFile,        // "missing-file"
  kBadFileKind,        // "bad-file-kind": symlink, hard link, FIFO, folder ...
  kUnreadable,         // "unreadable": the system cannot open or read the file
  kOutOfRange,         // "out-of-range": offset + length past the end of the file
  kWrongLength,        // "wrong-length": length is not dims x element size
  kInlineAndExternal,  // "inline-and-external": raw or typed data left in an external tensor
  kDuplicateName,      // "duplicate-name": two initializers of one graph share a name
  kBytesDiffer,        // "bytes-differ": not the checkpoint's bytes; names the first such byte
  kCrcDiffers,         // "crc-differs": not what the manifest recorded
  kChecksumDiffers,    // "checksum-differs": not the SHA-1 that the model states for the file
  kTypeDiffers,        // "type-differs": element type or dims are not the checkpoint's
  kManifest,           // "manifest": the manifest is damaged or does not describe this model
  kNotInCheckpoint,    // "not-in-checkpoint": an initializer that no key fills (--against)
  kMissingTensor,      // "missing-tensor": the model lacks an initializer that it must have
  kModelChanged,       // "model-changed": the model file's CRC is not the manifest's
  kOpenSlot,           // "open-slot": a used name has no definition, or an initializer no data
  kMixedSet,           // "mixed-set": models that belong together are of different saves
  kParentReplaced,     // "parent-replaced": the model that a piece was cut from is another now
};
[[nodiscard]] std::string_view finding_code_name(FindingCode code);

struct Finding {
  FindingCode code = FindingCode::kBadEntry;
  std::string tensor;  // initializer name; empty = the model or the manifest as a whole
  std::string file;    // relative to the model's folder, as the model spells it
  std::string message;
};

// "code: 'tensor': 'file': message": a finding as a line of text.
[[nodiscard]] std::string finding_text(const Finding& finding);

struct VerifyReport {
  std::vector<Finding> findings;  // ordered by tensor, in graph order
  std::uint64_t tensors = 0;      // external tensors checked
  // Tensors inside the model that the manifest or the checkpoint also has, and how many of these
  // were compared with the checkpoint.
  std::uint64_t inline_tensors = 0;
  std::uint64_t inline_compared = 0;
  // Float initializers with data inside the model that could not be compared with anything: not
  // with a tensor if a checkpoint is given, otherwise not with a manifest record or the model's
  // CRC-32.
  std::uint64_t inline_uncompared = 0;
  std::uint64_t bytes = 0;  // bytes read and compared
  // With a checkpoint: the number of `tensors` that were compared with it byte by byte, and the
  // number of these whose tensor only the manifest names.
  std::uint64_t compared = 0;
  std::uint64_t compared_by_manifest = 0;
  // The number of `tensors` that are ranges of the checkpoint itself rather than copies
  // (Layout::kLink), judged by their place if a checkpoint is given, otherwise by the manifest; and
  // how many of these have no recorded CRC-32, so that only the presence of their bytes was
  // checked.
  std::uint64_t linked = 0;
  std::uint64_t linked_without_crc = 0;
  // Irregularities of external tensors that can still be read.
  std::vector<CountedRemark> remarks;
  // The number of `tensors` that state no length, or 0. The length is then taken from type and
  // dims, but other readers take the rest of the file or refuse the model.
  std::uint64_t without_length = 0;
  std::uint64_t converted = 0;  // of `compared`: values were converted to the model's float type
  // Values that became infinite when they were converted for this model, as its manifest says.
  std::uint64_t overflowed = 0;
  bool used_manifest = false;
  std::vector<std::string> notes;  // Checkpoint::notes()
  std::uint64_t open_slots = 0;    // of `findings`: kOpenSlot. Not counted with OpenSlots::kAllow
  [[nodiscard]] bool ok() const { return findings.empty(); }
  [[nodiscard]] bool complete() const { return open_slots == 0; }  // nothing lacks its data
};

// kYes: before reading, so that the bytes come from the disk.
enum class DropCache : std::uint8_t { kNo, kYes };

// The way in which bytes are compared with those of a checkpoint.
enum class Compare : std::uint8_t {
  kBytes,  // both are read and compared
  // Halves the reading: if a CRC-32 is known, from the checkpoint (Checkpoint::recorded_crc) or
  // taken while writing (ExpectedTensor::written_crc), only the model is read and must have that
  // CRC. If it does not, bytes are compared to name the first that differs. Tensors without a known
  // CRC-32 are compared as with kBytes.
  kRecordedCrc,
  // Reads no bytes of external tensors: each must refer to exactly the range of the checkpoint's
  // file that its tensor occupies. For linked models, before they are published.
  kPlaces,
};

// kAllow: the model was written with weights left open.
enum class OpenSlots : std::uint8_t { kReport, kAllow };

struct VerifyOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Compare compare = Compare::kBytes;
  OpenSlots open_slots = OpenSlots::kReport;
  DropCache drop_cache = DropCache::kNo;  // ask the kernel to drop cached pages
  // Path of the manifest relative to the model's folder; empty = search for it.
  std::string manifest = {};
  ProgressFn progress;
};

// Checks structure (entries, paths, kinds of files, lengths, dims, open names) and, if there is a
// manifest with the data or beside the model, the CRC-32 of every tensor and of the model. Without
// a manifest only structure is checked; VerifyReport::used_manifest says which case it was. Fails
// only if it cannot work at all: there is no such model, it is not an ONNX model, or the caller
// cancelled.
[[nodiscard]] Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                                const VerifyOptions& options = {});

// Finds the model that a path means, as the functions for one model do: the file itself, or the
// only *.onnx file of a folder, or its "model.onnx" if there are several. kNotFound if the folder
// has none; kAmbiguous with the names.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::filesystem::path& path);
// The same, but all models of a folder if they were saved together as one set.
[[nodiscard]] Result<std::vector<std::filesystem::path>> find_models(
    const std::filesystem::path& path);

// The source of the claim that an initializer must equal a checkpoint tensor. The manifest is
// itself being verified, so it is only a hint; the report counts the tensors that rest on it alone.
// kModel: the tensor's data came with the loaded model, not from the checkpoint
// (PlannedTensor::given). Its element type and shape may differ from the model's, if it has as many
// bytes.
enum class ExpectedBy : std::uint8_t { kMapping, kManifest, kModel };

// One initializer and the checkpoint tensor that it must equal.
struct ExpectedTensor {
  std::string initializer;
  std::uint32_t graph = 0;
  std::size_t tensor = 0;  // index into Checkpoint::tensors()
  ExpectedBy by = ExpectedBy::kMapping;
  Casts casts =
      Casts::kRefuse;  // kAllow: converted to the initializer's type if that is a float type
  // The tensor that the manifest names instead, if it is not the same bytes; reported as a finding.
  std::optional<std::size_t> disputed = {};
  Recipe recipe = {};  // how its bytes are made from the tensor's
  // Taken of the bytes as they were written, for the save itself; with Compare::kRecordedCrc it
  // counts like a CRC-32 that the checkpoint records.
  std::optional<std::uint32_t> written_crc = {};
  TensorPlace place = TensorPlace::kInitializer;  // of `initializer` in its graph
  std::optional<PackedTensor> packed = {};        // it is a part of the quantized tensor
};

// Does what verify_model() does, and compares every byte, type and dimension of the expected
// initializers (external or inline) with the checkpoint. An external initializer that is not
// expected is a finding unless the manifest says that it came with the given graph; `compared` does
// not count it. If an exporter shared equal weights, an expected initializer is reached through
// Identity nodes and compared there. Also fails if the checkpoint cannot be read or changes
// meanwhile.
[[nodiscard]] Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                                        const Checkpoint& checkpoint,
                                                        std::span<const ExpectedTensor> expected,
                                                        const VerifyOptions& options = {});

// One of several models that are verified together.
struct ModelToVerify {
  std::filesystem::path path;
  std::span<const ExpectedTensor> expected = {};  // with a checkpoint; must outlive the call
  std::string manifest = {};                      // as VerifyOptions::manifest, which is not used
  // The folder that locations of linked files are relative to, where it is not the model's: a
  // staged model that links files is read before it is moved beside them. With it, only the places
  // of linked ranges are compared (Compare::kPlaces), whatever the options say about the others.
  std::filesystem::path linked_folder = {};
};

// Does what verify_model() and verify_model_against() do (`checkpoint` may be null) for several
// models. Each is opened and its entries are checked, but bytes that they share are read once. One
// report for each model, in order; VerifyReport::bytes counts shared bytes for each of them.
[[nodiscard]] Result<std::vector<VerifyReport>> verify_models(
    std::span<const ModelToVerify> models, const Checkpoint* checkpoint = nullptr,
    const VerifyOptions& options = {});

// Returns the tensors that a model written by a plan must hold: every initializer that the plan
// takes from the checkpoint. `model` is the one that was planned. `range_crcs`:
// StagedSave::range_crcs(), which saves computing again the tensors that were rearranged or
// converted while they were written (Compare::kRecordedCrc); empty: they are computed again.
// Tensors that were rearranged from memory are always computed again, because the memory may have
// changed. Tensors that the caller's function makes (provided_tensors.h) cannot be compared without
// `range_crcs` and StagedSave::inline_crcs(). `model_index`: the index of the model in
// SavePlan::models, if there are several.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(
    const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
    std::span<const std::uint32_t> range_crcs = {},
    const std::map<std::size_t, std::uint32_t>& inline_crcs = {}, std::uint32_t model_index = 0);

// Adds the derived tensors that `options` define; if these choose no pairs (below), those that the
// model's manifest records, as far as the checkpoint has their keys. Call it before the next
// function. Errors of add_derived_tensors().
[[nodiscard]] Status add_derived_tensors_of(const std::filesystem::path& model_path,
                                            const MappingOptions& options, Checkpoint& checkpoint,
                                            std::uint64_t max_expand = OpenOptions{}.max_expand);

// Determines what a saved model's initializers should be, by mapping again. Where the mapping has
// no answer, the manifest's record is used, provided that `options` choose no pairs (match, prefix,
// renames, derived, map) and the checkpoint has all tensors that the manifest names. Errors
// as for Model::load and map_tensors: the mapping must succeed with `options` or, if the record may
// be used, with the options of the save added.
[[nodiscard]] Result<std::vector<ExpectedTensor>> expected_tensors(
    const std::filesystem::path& model_path, const Checkpoint& checkpoint,
    const MappingOptions& options);

}  // namespace onnx_external
