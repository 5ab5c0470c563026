// Opens checkpoints (named tensors that are stored in one or more files) and reads their bytes.
//
// A checkpoint is read without torch and without Python: pickles are interpreted symbolically, and
// nothing that they name is imported or called. Opening reads only metadata; tensor bytes stay on
// disk until read() is called or a writer copies their range. Memory use is bounded by the metadata
// that is actually in the files, not by sizes that the files declare.
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

// Selects which tensors of a nested checkpoint are listed.
enum class Selection {
  kStateDict,   // the tensors of one dict, whose keys are the tensor names
  kEverything,  // every tensor that can be reached, under its full dotted path (for inspection)
  // The inputs of a model, recorded with torch.save as (args, kwargs), as a dict, or as a list of
  // these. In input set number S, keyword arguments are named "S.name" and positional arguments
  // "S.[i]" (test_data.h). If an input cannot be read, opening fails, as with kStateDict.
  kRecordedInputs,
};

// OpenOptions::max_expand does not apply to checkpoints whose tensors have fewer bytes than this in
// total, because small files may expand a lot: zeros, for example, deflate 1000:1.
inline constexpr std::uint64_t kAlwaysExpandedBytes = std::uint64_t{64} << 20;

struct OpenOptions {
  Selection selection = Selection::kStateDict;

  // Dotted path of the dict to use ("state_dict", "optimizer.state.0", "." for the root). Dicts,
  // lists and tuples inside it add their keys and indices to the tensor names, separated by dots.
  // If empty, the only dict that maps names to tensors is used, whether it is the root or nested
  // under string keys. Only the tensors directly in this dict and in its lists and tuples are
  // listed. If there are several such dicts, opening fails with kAmbiguous and the message lists
  // them.
  std::string key = {};

  // Selects the files of a folder by their variant: "fp16" opens model.fp16.safetensors. If a
  // variant is set but none of the paths is a folder, opening fails with kInvalidArgument.
  std::string variant = {};

  // Limits how large the tensors may be in comparison with the files, because a view may be larger
  // than its storage (stride 0, overlaps, compressed records). The total contiguous size of the
  // tensors, with shared bytes counted once, may be at most this many times the total size of the
  // files, or kAlwaysExpandedBytes if that is larger. A limit of 0 is treated as 1.
  std::uint64_t max_expand = 4;

  // If true and several paths contain a tensor of the same name, the tensor from the last of these
  // paths is used. If false, two tensors of the same name are an error.
  bool overlay = false;

  // If true, tensors are listed as they are stored. A weight that a quantization library stored in
  // parts is listed as its codes, scales and zero points, and GGUF tensors are not converted. If
  // false, the weights that these tensors represent are listed instead.
  bool stored_parts = false;

  // If true, sparse tensors (COO, CSR, CSC, BSR, BSC) become dense, with zeros filled in. If false,
  // they are an error.
  bool densify = false;

  // If true, complex32 tensors, which ONNX cannot represent, become complex64. If false, they are
  // an error.
  bool widen_complex32 = false;

  // Defines how objects of custom classes are flattened to named tensors. If null, the tensors in
  // such objects are left out of state dicts. Not owned; must live until open_checkpoint() returns.
  const ClassFlattening* classes = nullptr;

  // The number of threads that open the files of a sharded checkpoint. If `classes` is set, only
  // one thread is used.
  int threads = 0;  // 0 = one per CPU available to the process

  // The folder for temporary files, into which compressed records are inflated when their bytes are
  // read. These files have no names, so none of them remain after the process ends, even if it is
  // killed.
  std::filesystem::path scratch_dir = "/tmp";
};

enum class Compression : std::uint8_t { kNone, kDeflate };
enum class ByteOrder : std::uint8_t { kLittle, kBig };

// The location of a storage's bytes. kMemory and kMade occur only for tensors that the caller
// provides (provided_tensors.h).
enum class StorageKind : std::uint8_t {
  kFile,
  kMemory,  // in the caller's memory
  kMade,    // produced by a function of the caller when a save writes them
};

// Contiguous bytes that one or more tensors view: a range of a file, unless `computed` is set. A
// storage that is not in a file belongs to a CheckpointFile with an empty path.
struct Storage {
  std::uint32_t file = 0;          // index into Checkpoint::files()
  std::uint64_t offset = 0;        // where the (possibly compressed) bytes start in the file
  std::uint64_t stored_bytes = 0;  // size in the file; equals `bytes` unless compressed
  std::uint64_t bytes = 0;         // size of the storage itself
  Compression compression = Compression::kNone;
  ByteOrder byte_order = ByteOrder::kLittle;
  std::optional<std::uint32_t> crc32;  // CRC-32 of the uncompressed bytes, if recorded

  // True if the bytes are assembled from several ranges, converted, or part of the pickle itself.
  // In this case `offset` and `stored_bytes` have no meaning, and only Checkpoint::read() returns
  // the bytes.
  bool computed = false;

  StorageKind kind = StorageKind::kFile;
};

// One of the files that a checkpoint consists of.
struct CheckpointFile {
  std::filesystem::path path;  // as it was opened; empty for tensors that are in no file
  std::uint64_t bytes = 0;     // size of the file when it was opened

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

// A plain range of bytes of one file.
struct FileRange {
  std::uint32_t file = 0;  // index into Checkpoint::files()
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

// An object in a pickle that is neither a tensor nor a plain value. Such objects are reported, but
// no code of their class is executed.
struct OpaqueObject {
  std::string path;  // dotted path to it; "" = the root
  std::string type;  // "module.name" in the pickle
};

// A tensor that a file declares but the library cannot read (sparse, nested, meta, of an unknown
// element type, ...). With Selection::kStateDict, opening fails instead.
struct RefusedTensor {
  std::string path;
  std::string reason;
};

// A tensor that is not listed because a later path has a tensor of the same name
// (OpenOptions::overlay).
struct OverlaidTensor {
  std::string name;
  std::uint32_t argument = 0;  // the path that contains it, counted from 0
  std::uint32_t by = 0;        // the path whose tensor is listed
};

// The format versions that a checkpoint file states. If the checkpoint has several files, a field
// is set only if they all state the same version.
struct FormatFacts {
  std::string version;                 // torch's record `version` or the GGUF version; can be empty
  std::optional<int> pickle_protocol;  // protocol of the pickle that names the tensors

  friend bool operator==(const FormatFacts&, const FormatFacts&) = default;
};

// An open checkpoint. It is immutable, except for the cache of inflated records, which has its own
// lock, so const members may be called from several threads at once. Movable, not copyable. Files
// stay open for the lifetime of the object.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Returns the format, such as "torch-zip", "safetensors" or "sharded torch-zip" (docs/formats.md
  // lists all formats); "mixed" if the paths have different formats.
  [[nodiscard]] const std::string& format() const;
  [[nodiscard]] const FormatFacts& facts() const;

  // Tensors are ordered by the path argument that they come from, then as in the file. Their names
  // are unique.
  [[nodiscard]] const std::vector<TensorView>& tensors() const;
  [[nodiscard]] const std::vector<Storage>& storages() const;
  [[nodiscard]] const std::vector<CheckpointFile>& files() const;
  [[nodiscard]] const std::vector<OpaqueObject>& opaque_objects() const;
  [[nodiscard]] const std::vector<RefusedTensor>& refused_tensors() const;

  // Returns the index of the path, among those passed to open_checkpoint(), that contains the
  // tensor. `tensor` is an index into tensors().
  [[nodiscard]] std::uint32_t argument_of(std::size_t tensor) const;

  // Returns the tensors from which a derived tensor (derived.h) is computed, as indices into
  // tensors(). The result is empty for any other tensor.
  [[nodiscard]] std::span<const std::uint32_t> made_of(std::size_t tensor) const;

  // Returns, in order, the tensors that OpenOptions::overlay hides because a later path has a
  // tensor of the same name.
  [[nodiscard]] const std::vector<OverlaidTensor>& overlaid() const;

  // Names of tied tensors that safetensors' __metadata__ records as dropped: (dropped name, name of
  // the tensor in the file). Pairs whose second name is not in the file are left out.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& tied_names() const;

  // Notes for the user about anything unexpected, such as a file in the folder that was not read.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  // Returns the size in bytes that the tensor has in contiguous form.
  [[nodiscard]] std::uint64_t nbytes(std::size_t tensor) const;

  // Returns the range of a file that holds exactly the contiguous, little-endian, row-major bytes
  // of the tensor, or nullopt for compressed, computed, strided, big-endian, conjugated or negated
  // tensors. For an empty tensor, the range has length 0.
  [[nodiscard]] std::optional<FileRange> plain_range(std::size_t tensor) const;
  // This overload and the corresponding ones below take any view of the storages, such as the
  // result of apply_recipe(). Requires: the view lies inside its storage.
  [[nodiscard]] std::optional<FileRange> plain_range(const TensorView& view) const;

  // Returns the CRC-32 of the bytes in plain_range(), if the tensor is a whole uncompressed record
  // and its file records the CRC-32 of that record. A copy of the tensor can then be checked
  // without reading the checkpoint again.
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(std::size_t tensor) const;
  [[nodiscard]] std::optional<std::uint32_t> recorded_crc(const TensorView& view) const;

  // Fills `out` with the bytes [first, first + out.size()) of the tensor in contiguous,
  // little-endian, row-major form, regardless of how the file stores it. Uses at most
  // kReadScratchBytes of memory besides `out`; steps of 1 MiB or more are fastest. Thread-safe.
  // Errors: kIo; kCorrupt if the file has shrunk or an inflated record is damaged; kUnsupported for
  // a tensor whose bytes are produced on demand (LazyBytes in provided_tensors.h), except while a
  // save writes it. Requires: first + out.size() <= nbytes(tensor).
  [[nodiscard]] Status read(std::size_t tensor, std::uint64_t first,
                            std::span<std::byte> out) const;
  [[nodiscard]] Status read(const TensorView& view, std::uint64_t first,
                            std::span<std::byte> out) const;
  static constexpr std::uint64_t kReadScratchBytes = std::uint64_t{2} << 20;

  // Reads like read(), but converts the values to `dtype`. Like torch's .to(dtype), it rounds to
  // the nearest value, ties to even. `first` and out.size() count bytes of the converted tensor.
  // Requires: can_cast_from(the tensor's type), can_cast_to(dtype), whole elements.
  [[nodiscard]] Status read_as(std::size_t tensor, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;
  [[nodiscard]] Status read_as(const TensorView& view, DType dtype, std::uint64_t first,
                               std::span<std::byte> out) const;

  // Reads a whole storage and compares its CRC-32 with the recorded CRC-32. If no CRC-32 is
  // recorded, succeeds without reading. If the values differ, fails with kCorrupt; the message
  // names the file and the offset of the record.
  [[nodiscard]] Status check_storage(std::uint32_t storage) const;

  // Fails with kCorrupt if the size or modification time of a file has changed since it was opened.
  [[nodiscard]] Status check_unchanged() const;

 private:
  friend struct CheckpointAccess;
  struct Contents;
  explicit Checkpoint(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

// Opens `paths`, in this order, as one checkpoint. Each path is a checkpoint file, a Hugging Face
// shard index (*.index.json) or a folder. In a folder, the file that transformers'
// from_pretrained() loads is opened: the file that config.json names as transformers_weights, or
// the first existing file of model.safetensors, model.safetensors.index.json, pytorch_model.bin and
// pytorch_model.bin.index.json. If none of these exists, the .metadata file of a distributed
// checkpoint is opened, or else the folder's only checkpoint file (kAmbiguous, with a list, if
// there are several). The format is recognized by content, never by suffix. If two paths contain
// the same tensor name, the call fails with kAmbiguous, unless OpenOptions::overlay is set. Other
// errors: kNotFound, kIo, kCorrupt, kUnsupported (the message names the format, e.g. HDF5).
[[nodiscard]] Result<Checkpoint> open_checkpoint(std::span<const std::filesystem::path> paths,
                                                 const OpenOptions& options = {});

// Returns one checkpoint with the tensors of all `parts`, in order. The parts are not changed, and
// the result shares their open files. No file is read. If two parts have a tensor of the same name,
// the last one is used if `overlay` is set; otherwise the call fails with kAmbiguous. All options
// except `overlay` and `scratch_dir` are ignored.
[[nodiscard]] Result<Checkpoint> join_checkpoints(std::span<const Checkpoint* const> parts,
                                                  const OpenOptions& options = {});

// A tensor of a checkpoint (an index into tensors()), and its name in the new checkpoint.
struct SelectedTensor {
  std::size_t tensor = 0;
  std::string name;
};

// Returns a checkpoint with only the tensors in `selected`, in this order. The result shares the
// open files of the original. No file is read. Fails with kInvalidArgument for an index out of
// range or a name that occurs twice.
[[nodiscard]] Result<Checkpoint> select_tensors(const Checkpoint& checkpoint,
                                                std::span<const SelectedTensor> selected,
                                                const OpenOptions& options = {});

}  // namespace onnx_external
