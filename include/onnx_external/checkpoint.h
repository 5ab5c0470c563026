// Checkpoints: the named tensors in one or several files, and how to read their bytes.
//
// A checkpoint is read without torch and without Python: pickles are interpreted symbolically, and
// nothing that they name is ever imported or called. Opening reads metadata only; tensor bytes stay
// on disk until read() or until a writer copies their range. Memory is bounded by the metadata that
// is present in the files, never by sizes that they declare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

class ClassFlattening;  // class_flattening.h

// Which tensors of a nested checkpoint are listed.
enum class Selection {
  kStateDict,   // one mapping of names to tensors; its keys are the tensor names
  kEverything,  // every tensor reachable, under its full dotted path (for inspection)
  // Inputs of a model, recorded with torch.save as (args, kwargs), a dict, or a list of such sets:
  // "S.name" and "S.[i]" (test_data.h). As with kStateDict, one that cannot be read fails the open.
  kRecordedInputs,
};

// Tensors may always expand to so many bytes: a small checkpoint of zeros, say, deflates 1000:1.
inline constexpr std::uint64_t kAlwaysExpandedBytes = std::uint64_t{64} << 20;

struct OpenOptions {
  Selection selection = Selection::kStateDict;

  // Dotted path of the mapping to use ("state_dict", "optimizer.state.0", "." for the root);
  // mappings, lists and tuples inside it add their keys and indexes with dots. Empty: the only
  // mapping of names to tensors, at the root or nested under string keys; when there are several,
  // opening fails with kAmbiguous and the message lists the candidates. Only its own tensors and
  // those in its lists and tuples are listed then.
  std::string key = {};

  // Views may be larger than the bytes behind them (stride 0, overlaps, compressed records). The
  // contiguous size of all tensors together, equal views counted once, may be at most this many
  // times the size of the files, or kAlwaysExpandedBytes, whichever is more. 0 counts as 1.
  std::uint64_t max_expand = 4;

  // Of a name that stands in several of the paths the last one is taken. Off: refused.
  bool overlay = false;

  // Sparse tensors (COO, CSR, CSC, BSR, BSC) become dense ones, zeros written out. Off: refused.
  bool densify = false;

  // complex32 tensors, which ONNX cannot hold, become complex64. Off: refused.
  bool widen_complex32 = false;

  // How objects of custom classes flatten to named tensors; nothing: their tensors stay out of
  // state dicts. Not owned; used while opening only.
  const ClassFlattening* classes = nullptr;

  // One may parse while another one looks where the bytes lie: more than two are of no use.
  int threads = 0;  // 0 = one per CPU available to the process

  // Where compressed records are inflated to (nameless temporary files) when their bytes are read.
  std::filesystem::path scratch_dir = "/tmp";
};

enum class Compression : std::uint8_t { kNone, kDeflate };
enum class ByteOrder : std::uint8_t { kLittle, kBig };

// A run of bytes that one or more tensors view: a range of a file, unless it is computed.
struct Storage {
  std::uint32_t file = 0;          // index into Checkpoint::files()
  std::uint64_t offset = 0;        // of its first byte (compressed byte) in the file
  std::uint64_t stored_bytes = 0;  // bytes in the file; equals `bytes` unless compressed
  std::uint64_t bytes = 0;         // bytes of the storage itself
  Compression compression = Compression::kNone;
  ByteOrder byte_order = ByteOrder::kLittle;
  std::optional<std::uint32_t> crc32;  // of the uncompressed bytes, where the file records one

  // Put together from several ranges, converted, or held by the pickle itself: `offset` and
  // `stored_bytes` say nothing then, and only Checkpoint::read() gives the bytes.
  bool computed = false;
};

// One of the files that a checkpoint consists of.
struct CheckpointFile {
  std::filesystem::path path;  // as it was opened
  std::uint64_t bytes = 0;     // its size then

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// A plain range of bytes of one file.
struct FileRange {
  std::uint32_t file = 0;  // index into Checkpoint::files()
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

// An object in a pickle that is no tensor and no plain value: reported, never executed.
struct OpaqueObject {
  std::string path;  // dotted path of the place where it stands; "" = the root
  std::string type;  // "module.name" as the pickle spells it
};

// One tensor that the file declares but that cannot be read (sparse, nested, meta, of an unknown
// element type, ...). With Selection::kStateDict such a tensor fails the open instead.
struct RefusedTensor {
  std::string path;
  std::string reason;
};

// A tensor that is not listed, because a later path has one of its name (OpenOptions::overlay).
struct OverlaidTensor {
  std::string name;
  std::uint32_t argument = 0;  // the path that it stands in, counted from 0
  std::uint32_t by = 0;        // the path whose tensor is listed
};

// What files say of their own format; of several files, what they agree on.
struct FormatFacts {
  std::string version;                 // torch's record `version`; empty = none
  std::optional<int> pickle_protocol;  // of the pickle that names the tensors

  friend bool operator==(const FormatFacts&, const FormatFacts&) = default;
};

// Immutable after opening, except for the cache of inflated records, which locks itself: all const
// members may be called from several threads at once. Movable, not copyable. Files stay open for
// the lifetime of the object.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // What the files are ("torch-zip", "safetensors", "sharded torch-zip", ...: docs/formats.md lists
  // them); "mixed" for several arguments of different formats.
  [[nodiscard]] const std::string& format() const;
  [[nodiscard]] const FormatFacts& facts() const;

  // In the order of the files given, within a file in the file's own order. Names are unique.
  [[nodiscard]] const std::vector<TensorView>& tensors() const;
  [[nodiscard]] const std::vector<Storage>& storages() const;
  [[nodiscard]] const std::vector<CheckpointFile>& files() const;
  [[nodiscard]] const std::vector<OpaqueObject>& opaque_objects() const;
  [[nodiscard]] const std::vector<RefusedTensor>& refused_tensors() const;

  // For each tensor (same index as tensors()): which of the paths given to open_checkpoint it came
  // from, counted from 0.
  [[nodiscard]] std::uint32_t argument_of(std::size_t tensor) const;

  // With OpenOptions::overlay: what a later path put in the place of an earlier one's, in order.
  [[nodiscard]] const std::vector<OverlaidTensor>& overlaid() const;

  // Names that safetensors' __metadata__ records as dropped in favour of a kept tensor:
  // (dropped name, kept name). Only pairs whose kept name is a tensor of that file.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& tied_names() const;

  // Bytes of the contiguous tensor.
  [[nodiscard]] std::uint64_t nbytes(std::size_t tensor) const;

  // The range of a file that holds exactly the contiguous, little-endian, row-major bytes of the
  // tensor; nothing for compressed, computed, strided, big-endian, conjugated
  // or negated tensors. An empty tensor has length 0.
  [[nodiscard]] std::optional<FileRange> plain_range(std::size_t tensor) const;
  // Here and below: of any view of the storages, such as what apply_recipe() makes of a tensor.
  // Requires: it lies inside its storage.
  [[nodiscard]] std::optional<FileRange> plain_range(const TensorView& view) const;

  // The CRC-32 of those bytes, where the tensor is a whole uncompressed record and its file records
  // one: bytes with this CRC are the checkpoint's, and the file need not be read again to tell.
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(std::size_t tensor) const;
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(const TensorView& view) const;

  // Fills `out` with the bytes [first, first + out.size()) of the contiguous, little-endian,
  // row-major tensor, whatever its form in the file. Memory: at most kReadScratchBytes beside
  // `out`. Best in steps of 1 MiB or more. Thread-safe.
  // kIo; kCorrupt when the file shrank, or an inflated record is damaged.
  // Requires: first + out.size() <= nbytes(tensor).
  [[nodiscard]] Status read(std::size_t tensor, std::uint64_t first,
                            std::span<std::byte> out) const;
  [[nodiscard]] Status read(const TensorView& view, std::uint64_t first,
                            std::span<std::byte> out) const;
  static constexpr std::uint64_t kReadScratchBytes = std::uint64_t{2} << 20;

  // As read(), of the tensor with its values converted to `dtype` as torch's .to(dtype) does: to
  // the nearest, ties to even. `first` and out.size() count bytes of `dtype`.
  // Requires: can_cast_from(the tensor's type), can_cast_to(dtype), whole elements.
  [[nodiscard]] Status read_as(std::size_t tensor, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;
  [[nodiscard]] Status read_as(const TensorView& view, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;

  // Reads a whole storage and compares its CRC-32 with the recorded one; succeeds at once when none
  // is recorded. kCorrupt names the file and the record's offset.
  [[nodiscard]] Status check_storage(std::uint32_t storage) const;

  // kCorrupt when a file's size or modification time is no longer what it was at open.
  [[nodiscard]] Status check_unchanged() const;

 private:
  friend struct CheckpointAccess;
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

// Opens one checkpoint made of `paths`, in order: each a checkpoint file, a Hugging Face shard
// index (*.index.json) or a folder (which must hold, first wins: model.safetensors.index.json,
// model.safetensors, pytorch_model.bin.index.json, pytorch_model.bin, the .metadata of a
// distributed checkpoint; else exactly one checkpoint file, otherwise kAmbiguous with the list).
// The format is told by content, never by suffix. The same tensor name in two arguments is
// kAmbiguous, unless the later is to overlay the earlier.
// kNotFound, kIo, kCorrupt, kUnsupported (naming the format, e.g. HDF5), kAmbiguous.
[[nodiscard]] Result<Checkpoint> open_checkpoint(std::span<const std::filesystem::path> paths,
                                                 const OpenOptions& options = {});

}  // namespace onnx_external
