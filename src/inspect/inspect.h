// Lists the contents of a checkpoint or an ONNX model for inspect-external: the tensors, the
// locations of their bytes, and the slots of a model (values that a checkpoint can supply) that
// have no data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/progress.h"
#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Describes the bytes of a tensor if they are not a plain range of a file.
struct InspectedView {
  std::string file;  // as InspectedTensor::file; empty = computed: assembled, converted, or part of
                     // a pickle itself
  std::uint64_t offset = 0;           // offset of element 0, or of the compressed record
  std::vector<std::int64_t> strides;  // in elements; empty = contiguous
  bool expanded = false;              // a stride of 0 repeats elements
  bool conj = false;
  bool neg = false;
  bool deflated = false;
  bool big_endian = false;
  // For floats that are computed from a quantized weight: "GPTQ, 4 bits, groups of 128"; otherwise
  // empty.
  std::string quantized = {};
};

struct InspectedTensor {
  std::string name;
  std::string dtype;  // torch's short name, or ONNX's in lower case for types that torch lacks
  Shape shape;
  std::uint64_t nbytes = 0;  // size of the contiguous tensor; 0 for strings
  // Set if the bytes are one plain range of a file. The path is relative to the argument or, if the
  // argument is a file, to its folder.
  std::optional<std::string> file;
  std::uint64_t offset = 0;
  std::optional<InspectedView> view;  // set for a tensor of a checkpoint that has no `file`
  std::string
      sha256;  // of the contiguous, little-endian bytes, in lower-case hex; empty = not requested
  std::string problem;  // the rule that a model's entry breaks; empty = none
  // Set for a quantized matrix, which is listed instead of its parts. In this case `dtype` is int4
  // or int8, `file` and `offset` are those of the codes, and `sha256` is computed over codes,
  // scales and zero points, one after another.
  std::optional<Scheme> scheme = {};
  std::string key = {};  // the key with its values; empty = the model's own weight
  std::vector<InspectedTensor> parts = {};  // the parts in the model, without digests
};

// Returns type and shape as text, such as "float32 [2, 3]" or "int4 [4096, 4096], blocks of 64,
// zero points".
[[nodiscard]] std::string form_text(const InspectedTensor& tensor);

inline constexpr const char* kModelFormat = "onnx";
inline constexpr std::uint64_t kMinNodeBytes = 256;  // shapes and axes have fewer bytes

struct Inspection {
  std::string format;  // Checkpoint::format(), or kModelFormat
  std::vector<InspectedTensor> tensors;
  std::uint64_t bytes = 0;  // the sum of nbytes, at most 2^64-1

  // The version of torch's archive format, or the IR version and opsets of a model; empty = not
  // recorded.
  std::string version;
  std::string producer;  // for a model: name and version of the program that wrote it
  std::optional<int> pickle_protocol;
  std::string byte_order;        // byte order in the files: "little", "big", "mixed"; "" = no bytes
  std::size_t files = 0;         // files with tensors; for a model, its file and its data files
  std::uint64_t file_bytes = 0;  // total size of the files that exist

  // For checkpoints only:
  std::optional<Error> refusal;  // the error of a save without OpenOptions::key, if it would fail
  std::vector<std::pair<std::string, std::string>> tied;  // (tensor, first tensor of equal bytes)
  std::vector<std::pair<std::string, std::string>> tied_names;  // safetensors: (dropped, kept)
  std::vector<std::string> notes;                               // Checkpoint::notes()
  // The metadata of a GGUF file, and the number of its tensors of each type.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<OpaqueObject> opaque_objects;
  std::vector<RefusedTensor> refused_tensors;

  // For models only:
  std::vector<Slot> open_slots;  // slots without data
  // Tensors and lists of numbers of at least kMinNodeBytes in attributes of nodes, usually Constant
  // nodes, including those in functions and subgraphs. The largest come first. `name` is the name
  // of the value.
  std::vector<InspectedTensor> node_tensors;
};

enum class Digests : std::uint8_t { kNone, kSha256 };

struct InspectOptions {
  OpenOptions open = {};  // its selection and threads are ignored
  // Use kStateDict to list only the tensors that a save would use. If `open` has a key, kStateDict
  // is always used.
  Selection selection = Selection::kEverything;
  Digests digests = Digests::kNone;
  // Returns whether a digest is computed for a tensor; the index refers to Inspection::tensors. If
  // empty, digests are computed for all tensors.
  std::function<bool(std::size_t index, const InspectedTensor& tensor)> digest_if = {};
  int threads = 0;  // 0 = one per CPU available to the process
  ProgressFn progress;
};

// Opens and lists `paths`, which are either a checkpoint or a single model. The format is
// recognized by content. For a folder without a checkpoint, the model in it (find_model()) is
// listed. Errors as for open_checkpoint() and Model::load(); with digests also errors of reading
// and kCancelled.
[[nodiscard]] Result<Inspection> inspect(std::span<const std::filesystem::path> paths,
                                         const InspectOptions& options = {});

// Returns a + b, or 2^64-1 if the sum is larger, because a model can declare more bytes.
[[nodiscard]] std::uint64_t add_bytes(std::uint64_t a, std::uint64_t b);

// Returns whether the beginning of the file is that of a serialized ModelProto and not that of a
// checkpoint.
[[nodiscard]] Result<bool> looks_like_model(const std::filesystem::path& path);

}  // namespace onnx_external
