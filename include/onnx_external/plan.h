// Where every byte of a save goes: decided before anything is written; a pure value. plan_save() in
// save_external.h makes it, write_plan() in writer.h carries it out.
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
  kContent,  // also tensors whose bytes are equal: planning reads those of equal size
};

// Where tensors start in a file of several: no alignment given, large ones stand on pages and small
// ones on cache lines (ONNX, external data: 4096 for mapping files). The least is the largest
// element (complex128), the most a huge page.
inline constexpr std::uint64_t kPageAlignment = 4096;
inline constexpr std::uint64_t kSmallAlignment = 64;
inline constexpr std::uint64_t kMinPageAlignedBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMinAlignment = 16;
inline constexpr std::uint64_t kMaxAlignment = std::uint64_t{2} << 20;

// kEqualFiles: where a model is replaced, data files whose bytes do not change stay where they are
// (SavePlan::kept); the others get new names, as always. For layouts with data files, and one
// process.
enum class Reuse : std::uint8_t { kNo, kEqualFiles };

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
  std::uint32_t slot = kNoSlot;  // kNoSlot for kept keys and what the model had
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

// Where a model is saved, and what it calls its files there.
struct SaveTarget {
  std::filesystem::path folder;  // made if missing
  std::string model_name = "model.onnx";
  // Where a model is replaced, or the name is taken, the plan has this name with ".N" behind it.
  std::string data_dir = "initializers";
};

struct PlanOptions {
  Layout layout = Layout::kPerTensor;
  std::uint64_t max_shard_bytes = kDefaultShardBytes;  // for kShards
  // Of every tensor; a power of two. Not for kPerTensor.
  std::optional<std::uint64_t> alignment = {};
  Dedup dedup = Dedup::kStorage;
  GivenTensors given = GivenTensors::kStay;
  // Tensors of fewer bytes stay in the model or come into it; at most kMaxInlineBelow.
  std::uint64_t inline_below = 0;
  // Floats from the checkpoint become this type (can_cast_to); a slot that states another is
  // kMismatch. Nothing: they become what their slot states, where the mapping has paired a tensor
  // with a slot of another float type (MappingOptions::casts).
  std::optional<DType> dtype = {};
  Reuse reuse = Reuse::kNo;
  // What is copied of the data that the model brings along may be at most this many times what its
  // files store, or kAlwaysExpandedBytes, whichever is more. 0 counts as 1.
  std::uint64_t max_expand = 4;
};

// A file name for a tensor name: unchanged when it is safe everywhere, else "<escaped, cut>-<16 hex
// digits of its SHA-256>". `names` get distinct results, also on a case-insensitive file system;
// the result for a set of names does not depend on their order.
[[nodiscard]] std::vector<std::string> data_file_names(const std::vector<std::string>& names);

}  // namespace onnx_external
