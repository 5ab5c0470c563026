// Opens checkpoints, which are the named tensors in one or several files, and reads their bytes.
//
// A checkpoint is read without torch and without Python: pickles are interpreted symbolically, and
// nothing that they name is imported or called. Opening reads only metadata; tensor bytes stay on
// disk until read() is called or a writer copies their range. Memory is bounded by the metadata
// that the files contain, never by sizes that they declare.
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

// Selects the tensors of a nested checkpoint that are listed.
enum class Selection {
  kStateDict,   // those of one dict; its keys are the tensor names
  kEverything,  // every tensor that can be reached, under its full dotted path (for inspection)
  // Inputs of a model, recorded with torch.save as (args, kwargs), a dict, or a list of such sets.
  // They are named "S.name" and "S.[i]" (test_data.h). As with kStateDict, opening fails if one of
  // them cannot be read.
  kRecordedInputs,
};

// OpenOptions::max_expand never refuses tensors of fewer bytes than this in all: a small checkpoint
// of zeros, for example, deflates 1000:1.
inline constexpr std::uint64_t kAlwaysExpandedBytes = std::uint64_t{64} << 20;

struct OpenOptions {
  Selection selection = Selection::kStateDict;

  // Dotted path of the dict to use ("state_dict", "optimizer.state.0", "." for the root). Dicts,
  // lists and tuples inside it add their keys and indexes, separated by dots. If empty, the only
  // dict of names to tensors is used, at the root or nested under string keys, and only its own
  // tensors and those in its lists and tuples are listed. If there are several such dicts, opening
  // fails with kAmbiguous and the message lists them.
  std::string key = {};

  // Selects the files of a folder by their variant: "fp16" opens model.fp16.safetensors.
  // kInvalidArgument if no path is a folder.
  std::string variant = {};

  // Limits how large the tensors may be in comparison with the files, because a view may be larger
  // than its storage (stride 0, overlaps, compressed records). The contiguous size of all tensors
  // together, with shared bytes counted once, may be at most this many times the size of the files,
  // or kAlwaysExpandedBytes, whichever is more. 0 counts as 1.
  std::uint64_t max_expand = 4;

  // If several paths have a tensor of the same name, the last one is taken. By default that is an
  // error.
  bool overlay = false;

  // Weights that a quantization library stored in parts (codes, scales, zero points) are listed in
  // these parts, and tensors of GGUF as they are stored, not as the weights that they stand for.
  bool stored_parts = false;

  // Sparse tensors (COO, CSR, CSC, BSR, BSC) become dense, with zeros filled in. By default they
  // are an error.
  bool densify = false;

  // complex32 tensors, which ONNX cannot hold, become complex64. By default they are an error.
  bool widen_complex32 = false;

  // The table by which objects of custom classes flatten to named tensors. If null, their tensors
  // are left out of state dicts. Not owned; must live until open_checkpoint() returns.
  const ClassFlattening* classes = nullptr;

  // The number of threads that open the files of a sharded checkpoint; always one with `classes`.
  int threads = 0;  // 0 = one per CPU available to the process

  // The folder for temporary files. Compressed records are inflated into them, when their bytes are
  // read; the files have no names, so nothing is left behind.
  std::filesystem::path scratch_dir = "/tmp";
};

enum class Compression : std::uint8_t { kNone, kDeflate };
enum class ByteOrder : std::uint8_t { kLittle, kBig };

// The place of the bytes of a storage. kMemory and kMade occur only for the tensors of
// provided_tensors.h.
enum class StorageKind : std::uint8_t {
  kFile,
  kMemory,  // in the caller's memory
  kMade,    // produced on demand: a function of the caller returns them when they are written
};

// Contiguous bytes that one or more tensors view: a range of a file, unless `computed` is set.
// Storages that are in no file belong to a CheckpointFile with an empty path.
struct Storage {
  std::uint32_t file = 0;          // index into Checkpoint::files()
  std::uint64_t offset = 0;        // of its first (possibly compressed) byte in the file
  std::uint64_t stored_bytes = 0;  // size in the file; equals `bytes` unless compressed
  std::uint64_t bytes = 0;         // size of the storage itself
  Compression compression = Compression::kNone;
  ByteOrder byte_order = ByteOrder::kLittle;
  std::optional<std::uint32_t> crc32;  // of the uncompressed bytes, where the file records one

  // The bytes are assembled from several ranges, converted, or part of the pickle itself. `offset`
  // and `stored_bytes` have no meaning then, and only Checkpoint::read() returns the bytes.
  bool computed = false;

  StorageKind kind = StorageKind::kFile;
};

// One of the files that a checkpoint consists of.
struct CheckpointFile {
  std::filesystem::path path;  // as it was opened; empty for tensors that are in no file
  std::uint64_t bytes = 0;     // its size when it was opened

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// A plain range of bytes of one file.
struct FileRange {
  std::uint32_t file = 0;  // index into Checkpoint::files()
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

// An object in a pickle that is neither a tensor nor a plain value. It is reported, never executed.
struct OpaqueObject {
  std::string path;  // dotted path to it; "" = the root
  std::string type;  // "module.name" as the pickle spells it
};

// A tensor that a file declares but the library cannot read (sparse, nested, meta, of an unknown
// element type, ...). With Selection::kStateDict, opening fails instead.
struct RefusedTensor {
  std::string path;
  std::string reason;
};

// A tensor that is not listed because a later path has one of the same name
// (OpenOptions::overlay).
struct OverlaidTensor {
  std::string name;
  std::uint32_t argument = 0;  // the path that holds it, counted from 0
  std::uint32_t by = 0;        // the path whose tensor is listed
};

// The versions that a file records of its own format. For several files, a field is set only if all
// of them agree.
struct FormatFacts {
  std::string version;                 // torch's record `version`, or that of GGUF; may be empty
  std::optional<int> pickle_protocol;  // of the pickle that names the tensors

  friend bool operator==(const FormatFacts&, const FormatFacts&) = default;
};

// Immutable after opening, except for the cache of inflated records, which has its own lock; const
// members may be called from several threads at once. Movable, not copyable. Files stay open for
// the lifetime of the object.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // The format: "torch-zip", "safetensors", "sharded torch-zip", ... (docs/formats.md lists them);
  // "mixed" for several arguments of different formats.
  [[nodiscard]] const std::string& format() const;
  [[nodiscard]] const FormatFacts& facts() const;

  // Ordered by argument, then in the file's own order. Names are unique.
  [[nodiscard]] const std::vector<TensorView>& tensors() const;
  [[nodiscard]] const std::vector<Storage>& storages() const;
  [[nodiscard]] const std::vector<CheckpointFile>& files() const;
  [[nodiscard]] const std::vector<OpaqueObject>& opaque_objects() const;
  [[nodiscard]] const std::vector<RefusedTensor>& refused_tensors() const;

  // The index of the path given to open_checkpoint() that the tensor (an index into tensors())
  // comes from.
  [[nodiscard]] std::uint32_t argument_of(std::size_t tensor) const;

  // The tensors from which a derived tensor (derived.h) is computed, as indices into tensors().
  // Empty for any other tensor.
  [[nodiscard]] std::span<const std::uint32_t> made_of(std::size_t tensor) const;

  // With OpenOptions::overlay: the tensors that are hidden by one of the same name in a later path,
  // in order.
  [[nodiscard]] const std::vector<OverlaidTensor>& overlaid() const;

  // Names of tied tensors that safetensors' __metadata__ records as dropped: (dropped name, name of
  // the tensor in the file). Pairs whose second name is not in the file are left out.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& tied_names() const;

  // Sentences for the user about surprises, such as a file of the folder that was not read.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  // Bytes of the contiguous tensor.
  [[nodiscard]] std::uint64_t nbytes(std::size_t tensor) const;

  // The range of a file that holds exactly the contiguous, little-endian, row-major bytes of the
  // tensor. There is none for compressed, computed, strided, big-endian, conjugated or negated
  // tensors. An empty tensor has length 0.
  [[nodiscard]] std::optional<FileRange> plain_range(std::size_t tensor) const;
  // This and the overloads below take any view of the storages, such as the result of
  // apply_recipe(). Requires: the view lies inside its storage.
  [[nodiscard]] std::optional<FileRange> plain_range(const TensorView& view) const;

  // The CRC-32 of those bytes, if the tensor is a whole uncompressed record and its file records
  // one. A copy can then be checked without reading the checkpoint again.
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(std::size_t tensor) const;
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(const TensorView& view) const;

  // Fills `out` with the bytes [first, first + out.size()) of the contiguous, little-endian,
  // row-major tensor, whatever its form in the file. Uses at most kReadScratchBytes of memory
  // besides `out`; steps of 1 MiB or more are fastest. Thread-safe.
  // kIo; kCorrupt if the file has shrunk or an inflated record is damaged; kUnsupported for a
  // tensor whose bytes are produced on demand (LazyBytes in provided_tensors.h), except while a
  // save writes it. Requires: first + out.size() <= nbytes(tensor).
  [[nodiscard]] Status read(std::size_t tensor, std::uint64_t first,
                            std::span<std::byte> out) const;
  [[nodiscard]] Status read(const TensorView& view, std::uint64_t first,
                            std::span<std::byte> out) const;
  static constexpr std::uint64_t kReadScratchBytes = std::uint64_t{2} << 20;

  // Like read(), with the values converted to `dtype` as torch's .to(dtype) does: to the nearest
  // value, ties to even. `first` and out.size() count bytes of the converted tensor.
  // Requires: can_cast_from(the tensor's type), can_cast_to(dtype), whole elements.
  [[nodiscard]] Status read_as(std::size_t tensor, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;
  [[nodiscard]] Status read_as(const TensorView& view, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;

  // Reads a whole storage and compares its CRC-32 with the recorded one; succeeds at once if none
  // is recorded. The message of kCorrupt names the file and the record's offset.
  [[nodiscard]] Status check_storage(std::uint32_t storage) const;

  // kCorrupt if the size or modification time of a file has changed since it was opened.
  [[nodiscard]] Status check_unchanged() const;

 private:
  friend struct CheckpointAccess;
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

// Opens one checkpoint that consists of `paths`, in order. Each is a checkpoint file, a Hugging
// Face shard index (*.index.json) or a folder. Of a folder, the file that transformers'
// from_pretrained() loads is opened: the one that config.json names as transformers_weights, or the
// first that exists of model.safetensors, model.safetensors.index.json, pytorch_model.bin and
// pytorch_model.bin.index.json. Without any of these, it is the .metadata of a distributed
// checkpoint, otherwise the folder's only checkpoint file (kAmbiguous with the list if there are
// several). The format is recognized by content, never by suffix. The same tensor name in two
// arguments is kAmbiguous, unless OpenOptions::overlay is set. Also kNotFound, kIo, kCorrupt,
// kUnsupported (the message names the format, e.g. HDF5).
[[nodiscard]] Result<Checkpoint> open_checkpoint(std::span<const std::filesystem::path> paths,
                                                 const OpenOptions& options = {});

// Returns one checkpoint with the tensors of all `parts`, in order. The parts do not change; the
// result shares their open files. Reads nothing. Only the options `overlay` and `scratch_dir`
// apply: if two parts have a tensor of the same name, the last one is taken with `overlay`, and
// kAmbiguous is returned without it.
[[nodiscard]] Result<Checkpoint> join_checkpoints(std::span<const Checkpoint* const> parts,
                                                  const OpenOptions& options = {});

// A tensor of a checkpoint (an index into tensors()), and the name that it is to have.
struct SelectedTensor {
  std::size_t tensor = 0;
  std::string name;
};

// Returns a checkpoint with only the tensors in `selected`, in this order. It shares the files of
// the original. Reads nothing. kInvalidArgument for an index out of range or a name that occurs
// twice.
[[nodiscard]] Result<Checkpoint> select_tensors(const Checkpoint& checkpoint,
                                                std::span<const SelectedTensor> selected,
                                                const OpenOptions& options = {});

}  // namespace onnx_external
