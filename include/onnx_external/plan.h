// Where every byte of a save goes: decided before anything is written; a pure value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Integer tensors of rank <= 1 up to this many bytes stay inline: ONNX Runtime cannot read shapes,
// axes, pads and the like from external data.
inline constexpr std::uint64_t kMaxInlineIntegerBytes = 1024;

// How tensors are spread over files.
enum class Layout : std::uint8_t {
  kPerTensor,  // a file each, in a data folder
  kSingle,     // "model.data", beside the model
  kShards,     // "model-00001-of-00003.data", ...; no tensor is split
  kInline,     // inside the model file, of at most 2^31-1 bytes; nothing is shared then
  kLink,       // nowhere: the model refers to the checkpoint's own bytes, and nothing is copied
};

// What becomes of tensors that have their bytes in the given model. The rule for what stays inline
// (kMaxInlineIntegerBytes, strings, scales of Resize) holds for them, too.
enum class GivenTensors : std::uint8_t {
  kStay,
  kMove,               // initializers, sparse ones too, go where the layout says (kLink: they stay)
  kMoveAndAttributes,  // and attributes of nodes
};

// A tensor that is brought into the model from elsewhere is held in memory.
inline constexpr std::uint64_t kMaxInlineBelow = std::uint64_t{1} << 20;

// Which tensors share one run of bytes.
enum class Dedup : std::uint8_t {
  kOff,      // none
  kStorage,  // views of the same bytes of one file (tied weights)
  kContent,  // also tensors whose bytes are equal: merge_equal_bytes()
};

// Where tensors start in a file of several: no alignment given, large ones stand on pages and small
// ones on cache lines (ONNX, external data: 4096 for mapping files). The least is the largest
// element (complex128), the most a huge page.
inline constexpr std::uint64_t kPageAlignment = 4096;
inline constexpr std::uint64_t kSmallAlignment = 64;
inline constexpr std::uint64_t kMinPageAlignedBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMinAlignment = 16;
inline constexpr std::uint64_t kMaxAlignment = std::uint64_t{2} << 20;

inline constexpr std::uint64_t kDefaultShardBytes = 2'000'000'000;
inline constexpr std::size_t kMaxShards = 99'999;  // five digits

enum class TensorSource : std::uint8_t {
  kCheckpoint,     // source_index into Checkpoint::tensors()
  kModelExternal,  // source_index into Model::external_tensors(): copied along
  kModelInline,    // source_index into Model::inline_tensors()
};

// One initializer of the model that will be written.
struct PlannedTensor {
  std::string name;
  std::uint32_t slot = Attachment::kNoSlot;  // kNoSlot for kept keys and what the model had
  TensorSource source = TensorSource::kCheckpoint;
  std::size_t source_index = 0;
  std::string key;  // the checkpoint's name for it; empty for what the model had
  std::optional<Rule> rule;
  std::int32_t data_type = 0;
  Shape dims;
  std::uint64_t nbytes = 0;
  Recipe recipe = {};                 // applied to the key's view; ends with a cast for cast_to
  std::optional<DType> cast_to = {};  // the checkpoint's values are converted to this type
  // What the given model's manifest records of the bytes: who copies them must find it.
  std::optional<std::uint32_t> known_crc = {};
  // Index into SavePlan::parts; nothing = inline in the model.
  std::optional<std::uint32_t> part;
};

// One run of bytes in a data file; several tensors share one when they are the same bytes.
struct PlannedPart {
  std::uint64_t bytes = 0;
  std::size_t source_tensor = 0;  // index into SavePlan::tensors: the one whose bytes are written
  std::uint32_t file = 0;         // index into SavePlan::files
  std::uint64_t offset = 0;       // in that file
};

// One data file. What no part covers is zero bytes; with kLink, what else the checkpoint holds. In
// kInline it is the model file: the places in it are known, and the rest of it is made, when it is
// written.
struct PlannedFile {
  std::string name;
  std::uint64_t bytes = 0;
};

// A data file of the model that is replaced, with the very bytes that are planned: it stays where
// it is, and the new model refers to it there.
struct KeptFile {
  std::string location;             // relative to the model's folder
  std::string stamp;                // of the file that was compared: it must not change any more
  std::vector<std::uint32_t> crcs;  // CRC-32 of the file's parts, in their order
  std::string sha1;                 // with Checksum::kSha1; lower-case hex
};

struct SavePlan {
  std::string model_name;  // "model.onnx"
  // "initializers", or "initializers.N" when replacing a model. The files of other layouts than
  // kPerTensor stand beside the model: there is no such folder then, but their names have its N.
  std::string data_dir;
  Layout layout = Layout::kPerTensor;
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedPart> parts;  // file by file, by rising offset
  std::vector<PlannedFile> files;
  std::map<std::uint32_t, KeptFile> kept;  // by index into `files`: these are not written
  std::uint64_t bytes = 0;                 // of all data files that are written
  MappingOptions asked = {};               // Mapping::asked, for the manifest
  std::vector<std::size_t> oversized;  // tensors with a shard of their own that is past the limit

  // Relative to the model's folder, as the model spells it. Not for kInline.
  [[nodiscard]] std::string location(std::uint32_t file) const {
    if (const auto old = kept.find(file); old != kept.end()) {
      return old->second.location;
    }
    return layout == Layout::kPerTensor ? data_dir + "/" + files[file].name : files[file].name;
  }
};

struct PlanOptions {
  std::string model_name = "model.onnx";
  std::string data_dir = "initializers";
  Layout layout = Layout::kPerTensor;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;
  std::optional<std::uint64_t> alignment = {};  // of every tensor; a power of two
  Dedup dedup = Dedup::kStorage;                // kContent is as kStorage here
  GivenTensors given = GivenTensors::kStay;
  // Tensors of fewer bytes stay in the model or come into it; at most kMaxInlineBelow.
  std::uint64_t inline_below = 0;
  // Casts::kAllow: where a slot states a float type that is not its key's, the values are
  // converted.
  Casts casts = Casts::kRefuse;
  // Floats from the checkpoint become this type (can_cast_to); a slot that states another is
  // kMismatch.
  std::optional<DType> dtype = {};
};

// Pure: reads no tensor. Offsets follow the order of the mapping's pairs; those of kLink are the
// checkpoint's, and its files have no names before link_files().
// kInvalidArgument for names that are not plain file names, numbers out of range and more than
// kMaxShards shards; kUnsupported for a tensor that ONNX cannot hold, for a model of more than
// 2^31-1 bytes, and (kLink) for a tensor that is no plain, aligned range of a file; kCorrupt as
// tensor.h.
[[nodiscard]] Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                         const Mapping& mapping, const PlanOptions& options);

// With Layout::kLink, finds out how a model in `out_dir` spells the files that it refers to: the
// checkpoint's, and those of data that came with the graph. Other plans come back as they are.
// kInvalidArgument when a file stands neither in that folder nor below it, is a symbolic link or
// has several links (onnx refuses both), or has a name that no location may have; kNotFound, kIo.
[[nodiscard]] Result<SavePlan> link_files(SavePlan plan, const Model& model,
                                          const Checkpoint& checkpoint,
                                          const std::filesystem::path& out_dir);

// Reads tensors of equal size to find those with equal bytes (CRC-32, then SHA-256), and plans each
// run of bytes once; nothing in kInline. External data that came with the graph is not read. The
// result does not depend on the number of threads. Errors as make_plan; kIo, kCorrupt, kCancelled;
// kInvalidArgument with kLink, which stores nothing.
[[nodiscard]] Result<SavePlan> merge_equal_bytes(SavePlan plan, const Model& model,
                                                 const Checkpoint& checkpoint,
                                                 const PlanOptions& options, int threads = 0,
                                                 const ProgressFn& progress = nullptr);

// A file name for a tensor name: unchanged when it is safe everywhere, else "<escaped, cut>-<16 hex
// digits of its SHA-256>". `names` get distinct results, also on a case-insensitive file system;
// the result for a set of names does not depend on their order.
[[nodiscard]] std::vector<std::string> data_file_names(const std::vector<std::string>& names);

}  // namespace onnx_external
