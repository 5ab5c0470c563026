// Defines the plan of a save, which is a plain value that states the file and offset of every
// tensor before anything is written. plan_save() in save_external.h makes the plan, and
// write_plan() in writer.h carries it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/quantize.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Integer tensors of rank 0 or 1 with at most this many bytes are stored in the model file, because
// ONNX Runtime cannot read shapes, axes, pads and similar parameters from external data.
inline constexpr std::uint64_t kMaxInlineIntegerBytes = 1024;

// If PlanOptions::inline_below is not set, tensors of fewer bytes whose data is inside the loaded
// model stay there. Such small tensors are usually parameters of operators, which runtimes without
// a file system, such as ONNX Runtime Web, need while they load the graph.
inline constexpr std::uint64_t kMinMovedBytes = 1024;

// Decides how tensors are distributed over files.
enum class Layout : std::uint8_t {
  kPerTensor,  // one file per tensor, in a data folder
  kSingle,     // "model.data" (PlanOptions::data_name), next to the model
  kShards,     // "model-00001-of-00003.data", ...; no tensor is split
  kInline,     // inside the model file (at most 2^31-1 bytes), where tensors cannot share bytes
  // Nothing is copied: the model refers to the checkpoint's own bytes. If PlanOptions::quantize
  // keeps the checkpoint's codes, all other data is written to one file, as with kSingle.
  kLink,
};

// Decides what happens to tensors whose data is inside the loaded model. Tensors that every save
// stores inline (kMaxInlineIntegerBytes, strings, scales of Resize) remain inline in any case.
enum class ExistingData : std::uint8_t {
  kStay,
  kMove,  // initializers, including sparse ones, are moved to data files (with kLink they stay)
  kMoveAndAttributes,  // attributes of nodes also move
};

// The upper limit of PlanOptions::inline_below. The limit bounds memory use, because tensors that
// are moved into the model are held in memory.
inline constexpr std::uint64_t kMaxInlineBelow = std::uint64_t{1} << 20;

// Decides which tensors share one copy of their bytes.
enum class Dedup : std::uint8_t {
  kOff,      // none
  kStorage,  // views of the same bytes in one file (tied weights)
  kContent,  // also tensors whose bytes are equal; planning reads tensors of equal size
};

// The alignment of tensors in a file that holds several, unless PlanOptions::alignment is set:
// large tensors are aligned to pages (ONNX recommends 4096 bytes so that files can be mapped), and
// small tensors to cache lines. The minimum alignment is the size of the largest element type
// (complex128), and the maximum is the size of a huge page.
inline constexpr std::uint64_t kPageAlignment = 4096;
inline constexpr std::uint64_t kSmallAlignment = 64;
inline constexpr std::uint64_t kMinPageAlignedBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMinAlignment = 16;
inline constexpr std::uint64_t kMaxAlignment = std::uint64_t{2} << 20;

inline constexpr std::uint64_t kDefaultShardBytes = 2'000'000'000;
inline constexpr std::size_t kMaxShards = 99'999;  // file names have five digits
inline constexpr std::size_t kMaxSetModels = 100;  // models saved in one call

enum class TensorSource : std::uint8_t {
  kCheckpoint,     // source_index into Checkpoint::tensors()
  kModelExternal,  // source_index into Model::external_tensors()
  kModelInline,    // source_index into Model::inline_tensors()
};

// A part of a quantized matrix. All parts of a matrix are computed in one pass over its rows, and
// their ranges are adjacent, in this order.
enum class MatrixPart : std::uint8_t { kCodes, kScales, kZeroPoints };
inline constexpr std::size_t kMatrixParts = 3;

// Describes how the bytes of one part are computed from a matrix of rows x columns. The matrix is
// the result of the tensor's recipe. If the recipe has a cast, its elements are float32.
struct PackedTensor {
  Scheme scheme = {};
  MatrixPart part = MatrixPart::kCodes;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;

  friend bool operator==(const PackedTensor&, const PackedTensor&) = default;
};

// One tensor of the model that will be written, usually an initializer.
struct PlannedTensor {
  std::string name;
  std::uint32_t slot = kNoSlot;  // kNoSlot for Unmatched::kKeep and for the model's own tensors
  TensorSource source = TensorSource::kCheckpoint;
  std::size_t source_index = 0;
  std::uint32_t model_index = 0;  // index of the tensor's model in SavePlan::models
  std::string key;                // name in the checkpoint; empty for the model's own tensors
  std::optional<Rule> rule;
  std::int32_t data_type = 0;
  Shape dims;
  std::uint64_t nbytes = 0;
  Recipe recipe = {};                 // applied to the key's view; a final cast is to cast_to
  std::optional<DType> cast_to = {};  // the checkpoint's values are converted to this type
  // The CRC-32 that the loaded model's manifest records for these bytes. If the copied bytes have a
  // different CRC-32, the save fails.
  std::optional<std::uint32_t> recorded_crc = {};
  // Set if the tensor is external data of the loaded model that is held in memory: its index in
  // Model::external_tensors(). In this case `source_index` is the tensor of the checkpoint with the
  // bytes, and `key` is empty.
  std::optional<std::size_t> existing_index = {};
  std::optional<PackedTensor> packed = {};  // if set, `dims` and `nbytes` are those of the part
  // The range with the tensor's data, as an index into SavePlan::ranges. Nullopt if the data is
  // stored in the model.
  std::optional<std::uint32_t> range;
};

// A range of a data file. Tensors with the same bytes may share a range.
struct DataRange {
  std::uint64_t bytes = 0;
  std::size_t source_tensor = 0;  // index into SavePlan::tensors: the tensor that is written here
  std::uint32_t file = 0;         // index into SavePlan::files
  std::uint64_t offset = 0;       // in that file
};

// One data file. Bytes that no range covers are zero. With kInline, this is the model file, whose
// offsets and size are known only after it is written.
struct PlannedFile {
  std::string name;
  std::uint64_t bytes = 0;
  bool is_linked = false;  // an existing file of the checkpoint or of the loaded model's data
  // The number of `bytes` that come from holes in the checkpoint's files, that is, ranges of zeros
  // without disk blocks. The copy has the same holes and needs no disk space for them.
  std::uint64_t hole_bytes = 0;
};

struct MatrixPlan;  // onnx/matrix_choice.h

// One of the models of a plan. All models share the data files of the plan.
struct PlannedModel {
  std::string name;
  MappingOptions mapping_options = {};  // Mapping::options, for its manifest
  // The nodes that read quantized matrices, or null if there are none. It refers to data of the
  // planned model.
  std::shared_ptr<const MatrixPlan> matrices = {};
};

struct SavePlan {
  std::vector<PlannedModel> models;  // one or more; `tensors` has the same order
  // The data folder, which only kPerTensor has: "initializers", or "initializers.N" when a model is
  // replaced. With the other layouts, the data files are next to the model, and their names contain
  // the same number N.
  std::string data_dir;
  std::string data_name = {};  // PlanOptions::data_name
  Layout layout = Layout::kPerTensor;
  std::vector<PlannedTensor> tensors;
  // The ranges are grouped by file, and within a file they are in ascending order of offset. The
  // ranges of linked files come last, in any order.
  std::vector<DataRange> ranges;
  std::vector<PlannedFile> files;
  std::uint64_t bytes = 0;             // size of all data files that are written
  std::vector<std::size_t> oversized;  // tensors above the shard limit, each in its own shard
  // A hash of the plan and its sources, which identifies the bytes of all data files. A killed save
  // is resumed only by a plan with the same `job`. If `job` is empty, the save is never resumed.
  std::string job = {};

  // Returns whether the plan has a single model. If so, data files are named after the model,
  // otherwise after `data_dir`.
  [[nodiscard]] bool is_of_one() const { return models.size() == 1; }

  [[nodiscard]] bool is_linked(std::uint32_t range) const {
    return files[ranges[range].file].is_linked;
  }
  // Returns the number of ranges that the save writes. These ranges come first in `ranges`.
  [[nodiscard]] std::size_t written_ranges() const;

  // Returns the location of a data file, relative to the model's folder, as the model states it.
  // Requires: the layout is not kInline.
  [[nodiscard]] std::string location(std::uint32_t file) const {
    return layout == Layout::kPerTensor ? data_dir + "/" + files[file].name : files[file].name;
  }
};

// The folder that a model is saved to, and the names of the files there.
struct SaveTarget {
  std::filesystem::path folder;  // created if missing
  std::string model_name = "model.onnx";
  // The name of the data folder. If a model is replaced or the name is already in use, the plan
  // appends ".N".
  std::string data_dir = "initializers";
};

struct PlanOptions {
  Layout layout = Layout::kPerTensor;
  // The name of the data file, for kSingle ("weights.bin") and kShards, which inserts the number of
  // the shard ("weights-00001-of-00003.bin"). If a model is replaced or the name is already in use,
  // ".N" is inserted before the suffix. If empty, the model's name with the suffix ".data" is used.
  // If written_layout() is another layout, a name is an error.
  std::string data_name = {};
  std::optional<std::uint64_t> max_shard_bytes = {};  // for kShards; if not set, kDefaultShardBytes
  // The alignment of every tensor, a power of two. For kSingle and kShards.
  std::optional<std::uint64_t> alignment = {};
  Dedup dedup = Dedup::kStorage;
  ExistingData existing_data = ExistingData::kStay;
  // Tensors of fewer bytes are stored in the model. The value may be at most kMaxInlineBelow. If
  // not set, tensors of fewer than kMinMovedBytes that are inside the loaded model stay there.
  std::optional<std::uint64_t> inline_below = {};
  // Floating-point tensors of the checkpoint are converted to this type (see can_cast_to()); if a
  // slot states a different type, planning fails with kMismatch. If not set, a tensor is converted
  // to the type of its slot only where the mapping paired different float types
  // (MappingOptions::casts).
  std::optional<DType> dtype = {};
  // How matrices are quantized (quantize.h); if nullopt, they stay unchanged. With kLink, the
  // checkpoint's codes must be kept.
  std::optional<QuantizeOptions> quantize = {};
  // The data that is copied from the loaded model may be at most this many times the size of the
  // model's files, or kAlwaysExpandedBytes if that is larger. A limit of 0 is treated as 1.
  std::uint64_t max_expand = 4;

  // Returns the layout of the files that are written. With kLink and `quantize`, all data that is
  // not linked is written to a single file.
  [[nodiscard]] Layout written_layout() const {
    return layout == Layout::kLink && quantize ? Layout::kSingle : layout;
  }
};

// Returns a file name for each tensor name. A tensor name that is safe on every file system is used
// unchanged. Any other name is escaped, shortened, and followed by "-" and 16 hex digits of its
// SHA-256. The file names are distinct, even on a case-insensitive file system, and do not depend
// on the order of the tensor names.
[[nodiscard]] std::vector<std::string> data_file_names(const std::vector<std::string>& names);

}  // namespace onnx_external
