// Reads a written model back as a stranger would, and lists what is wrong with it.
//
// Nothing that a model says is believed: entries are checked as the strictest loaders check them,
// files are opened without following links, lengths are compared with dims. A finding never stops
// the work, so one run lists them all. Memory: the model and its manifest, two buffers of at most
// 1 MiB a thread, and below 64 MiB where transposed tensors are compared with a checkpoint. The
// functions keep no state and may run in several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
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

// What can be wrong; finding_code_name gives the stable name in JSON.
enum class FindingCode : std::uint8_t {
  kBadEntry,           // "bad-entry": external_data keys or values break the rules
  kBadLocation,        // "bad-location": the path is absolute, leaves the folder, has ".." ...
  kMissingFile,        // "missing-file"
  kBadFileKind,        // "bad-file-kind": symlink, hard link, FIFO, folder ...
  kUnreadable,         // "unreadable": the system refuses to open or to read the file
  kOutOfRange,         // "out-of-range": offset + length past the end of the file
  kWrongLength,        // "wrong-length": length is not dims x element size
  kInlineAndExternal,  // "inline-and-external": raw or typed data left in an external tensor
  kDuplicateName,      // "duplicate-name": two initializers of one graph share a name
  kBytesDiffer,        // "bytes-differ": not the checkpoint's bytes; says at which byte
  kCrcDiffers,         // "crc-differs": not what the manifest recorded
  kChecksumDiffers,    // "checksum-differs": not the SHA-1 that the model states for the file
  kTypeDiffers,        // "type-differs": element type or dims are not the checkpoint's
  kManifest,           // "manifest": it is damaged, or does not describe this model
  kNotInCheckpoint,    // "not-in-checkpoint": an initializer that no key fills (--against)
  kMissingTensor,      // "missing-tensor": the model lacks an initializer that it must have
  kModelChanged,       // "model-changed": the model file's CRC is not the manifest's
  kOpenSlot,           // "open-slot": a name that is used and nothing defines; no data
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
  std::vector<Finding> findings;  // by tensor in graph order
  std::uint64_t tensors = 0;      // external tensors looked at
  // Tensors inside the model that the manifest or the checkpoint has too, and how many of these
  // were compared with the checkpoint.
  std::uint64_t inline_tensors = 0;
  std::uint64_t inline_compared = 0;
  // Initializers of floats with their data inside the model that nothing was compared with: no
  // tensor of the checkpoint where there is one, else no record and no CRC-32 of the model.
  std::uint64_t inline_uncompared = 0;
  std::uint64_t bytes = 0;  // bytes read and compared
  // With a checkpoint: how many of `tensors` were compared with it byte by byte, and how many of
  // these with a tensor that only the manifest names.
  std::uint64_t compared = 0;
  std::uint64_t compared_by_manifest = 0;
  // How many of `tensors` are no copies but ranges of the checkpoint itself (Layout::kLink): by
  // place when there is a checkpoint, else by the manifest. And how many of these have no CRC-32 on
  // record, so that nothing is known of their bytes but that they are there.
  std::uint64_t linked = 0;
  std::uint64_t linked_without_crc = 0;
  // How many of `tensors` state no length. What their type and dims need is read, but other readers
  // take the rest of the file, or refuse the model.
  std::uint64_t without_length = 0;
  std::uint64_t converted = 0;  // of `compared`: with values converted to the model's float type
  bool used_manifest = false;
  [[nodiscard]] bool ok() const { return findings.empty(); }
};

enum class DropCache : std::uint8_t {
  kNo,
  kYes,     // before it is read, so that it comes from the disk
  kBehind,  // that, and again when it was read: the page cache keeps what it had
};

// How bytes are compared with a checkpoint's.
enum class Compare : std::uint8_t {
  kBytes,  // both are read and compared
  // A tensor whose CRC-32 the checkpoint records (Checkpoint::recorded_crc) is read from the model
  // alone and must have that CRC; bytes are compared only where it has not, to name the first that
  // differs. Half the reading. So must one with a CRC-32 that was taken while it was written
  // (ExpectedTensor::written_crc). Tensors without either are compared as with kBytes.
  kRecordedCrc,
  // No byte of an external tensor is read: each must be the very range of the checkpoint's own file
  // that the tensor is. For models that link, before they are published.
  kPlaces,
};

// kAllow: a model that is written with weights left open.
enum class OpenSlots : std::uint8_t { kReport, kAllow };

struct VerifyOptions {
  int threads = 0;  // 0 = one per CPU available to the process
  Compare compare = Compare::kBytes;
  OpenSlots open_slots = OpenSlots::kReport;
  DropCache drop_cache = DropCache::kNo;  // ask the kernel to read from the disk again
  // Where the manifest is, relative to the model's folder; empty: it is looked for.
  std::string manifest = {};
  // Where the locations of external tensors start; empty: the model's folder.
  std::filesystem::path data_folder = {};
  // Locations of files that were compared with the checkpoint just now: not even looked at.
  std::set<std::string> compared_files = {};
  ProgressFn progress;
};

// Checks structure (entries, paths, kinds of files, lengths, dims, open names) and, when there is a
// manifest with the data or beside the model, the CRC-32 of every tensor and of the model. A model
// without manifest is checked for structure alone (used_manifest tells). Fails only when it cannot
// do its work: no such model, not an ONNX model, cancelled.
[[nodiscard]] Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                                const VerifyOptions& options = {});

// The model that a path means: the file itself, or in a folder its one *.onnx file, or "model.onnx"
// beside others. kNotFound when the folder has none; kAmbiguous, with their names.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::filesystem::path& path);

// Who says which checkpoint tensor an initializer must equal. The manifest is part of what is being
// verified: it is a hint, and the report counts the tensors that rest on it alone.
enum class ExpectedBy : std::uint8_t { kMapping, kManifest };

// One initializer and the checkpoint tensor that it must equal.
struct ExpectedTensor {
  std::string initializer;
  std::uint32_t graph = 0;
  std::size_t tensor = 0;  // index into Checkpoint::tensors()
  ExpectedBy by = ExpectedBy::kMapping;
  Casts casts =
      Casts::kRefuse;  // kAllow: converted to the initializer's type, if that is a float's
  // The tensor that the manifest names instead, when its bytes are not the same ones: a finding.
  std::optional<std::size_t> disputed = {};
  Recipe recipe = {};  // how its bytes are made from the tensor's
  // Of the bytes as they were written, for the save itself: with Compare::kRecordedCrc it serves as
  // one that the checkpoint records.
  std::optional<std::uint32_t> written_crc = {};
};

// As verify_model, and compares every byte, type and dimension of the expected initializers
// (external or inline) with the checkpoint. An external initializer that is not expected is a
// finding, unless the manifest says that it came with the given graph; `compared` does not count
// it. An expected one that the graph has through Identity nodes (equal weights that an exporter
// shared) is compared there. Fails also when the checkpoint cannot be read, or changed meanwhile.
[[nodiscard]] Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                                        const Checkpoint& checkpoint,
                                                        std::span<const ExpectedTensor> expected,
                                                        const VerifyOptions& options = {});

// What a model that is written by a plan must hold: every initializer that the plan takes from the
// checkpoint. `model` is the one that was planned. `part_crcs`: StagedSave::part_crcs(), which
// spares making again what was rearranged or converted while it was written
// (Compare::kRecordedCrc); empty: it is made again.
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(
    const SavePlan& plan, const Model& model, const Checkpoint& checkpoint,
    std::span<const std::uint32_t> part_crcs = {});

// Finds out what a saved model's initializers should be: by mapping anew and, when `options` choose
// no pairs (match, prefix, renames, map, ties) and the checkpoint has all the tensors that the
// manifest names, by its record where the mapping has no answer. Errors as Model::load and
// map_tensors: the mapping must succeed with `options` or, where the record serves, with those of
// the save besides.
[[nodiscard]] Result<std::vector<ExpectedTensor>> expected_tensors(
    const std::filesystem::path& model_path, const Checkpoint& checkpoint,
    const MappingOptions& options);

}  // namespace onnx_external
