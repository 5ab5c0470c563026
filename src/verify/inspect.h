// What is in a file: the tensors of a checkpoint or of an ONNX model, where their bytes are, and
// what a model still lacks. For inspect-external.
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

#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/progress.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

struct InspectedTensor {
  std::string name;
  std::string dtype;  // torch's short name; for types that torch lacks ONNX's, in lower case
  Shape shape;
  std::uint64_t nbytes = 0;  // of the contiguous tensor; 0 for strings
  // Where the bytes are when they are one plain range of a file; relative to the folder of the
  // argument (a folder itself, or the one that the file is in).
  std::optional<std::string> file;
  std::uint64_t offset = 0;
  std::string sha256;   // lower-case hex, of the contiguous little-endian bytes; empty = not asked
  std::string problem;  // a model's entry that breaks the rules; empty = none
};

inline constexpr const char* kModelFormat = "onnx";

struct Inspection {
  std::string format;  // Checkpoint::format(), or kModelFormat
  std::vector<InspectedTensor> tensors;
  std::uint64_t bytes = 0;  // the sum of nbytes

  // Checkpoints.
  std::vector<std::pair<std::string, std::string>> tied;  // (tensor, first tensor of equal bytes)
  std::vector<std::pair<std::string, std::string>> tied_names;  // safetensors: (dropped, kept)
  std::vector<OpaqueObject> opaque_objects;
  std::vector<RefusedTensor> refused_tensors;

  // Models.
  std::vector<Slot> open_slots;  // without data
};

enum class Digests : std::uint8_t { kNone, kSha256 };

struct InspectOptions {
  std::uint64_t max_expand = OpenOptions{}.max_expand;  // as OpenOptions has it
  const ClassFlattening* classes = nullptr;             // as OpenOptions has it
  Digests digests = Digests::kNone;
  int threads = 0;  // 0 = one per CPU available to the process
  ProgressFn progress;
};

// Opens a checkpoint made of `paths` with Selection::kEverything, or the model that a single path
// holds; told by content. Errors as open_checkpoint and Model::load; with digests also reading
// errors and kCancelled.
[[nodiscard]] Result<Inspection> inspect(std::span<const std::filesystem::path> paths,
                                         const InspectOptions& options = {});

// True when the file starts as a serialized ModelProto does and as no checkpoint does.
[[nodiscard]] Result<bool> looks_like_model(const std::filesystem::path& path);

}  // namespace onnx_external
