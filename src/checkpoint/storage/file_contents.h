// Holds the contents of a checkpoint file, as a format reader returns them and a Checkpoint stores
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/storage/inflated_storages.h"
#include "checkpoint/storage/joined_views.h"
#include "onnx_external/checkpoint.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

struct QuantizedMatrix;  // quantized/quantized_matrix.h

// The maximum rank of a tensor, as in torch. It limits the work for one view.
inline constexpr std::size_t kMaxRank = 64;

// A weight that its file declares to be quantized, with the names of the tensors that store it.
struct DeclaredWeight {
  std::string name;
  std::string type;
  std::optional<Shape> shape;  // nullopt: not declared
  std::vector<std::string> parts;
};

// The tensors of one file, or of several files combined. Plain data.
struct FileContents {
  std::string format;
  FormatFacts facts;
  std::vector<std::shared_ptr<const SourceFile>> files;
  std::vector<Storage> storages;  // Storage::file indexes `files`
  // TensorView::storage indexes `storages`; all views are inside their storages.
  std::vector<TensorView> tensors;
  std::vector<OpaqueObject> opaque;
  std::vector<RefusedTensor> refused;
  std::vector<std::pair<std::string, std::string>> tied_names;
  std::vector<std::string> notes;  // Checkpoint::notes()

  // The sources of the storages for which Storage::computed is set, by index. A source reads the
  // storage's bytes, little-endian. It may be called from several threads at once, and keeps its
  // inputs alive.
  std::unordered_map<std::uint32_t, ReadSource> computed;

  // For a computed storage, the storages from which it is computed. A CRC-32 that is recorded for
  // one of them also protects the computed bytes.
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> made_of;

  // For a computed storage that is joined from views of other storages, these views.
  std::unordered_map<std::uint32_t, std::shared_ptr<const JoinedParts>> joined;

  // For a computed storage with the floats of a quantized weight, the description of the weight.
  // `stored` contains the stored tensors that such weights replace.
  std::unordered_map<std::uint32_t, std::shared_ptr<const QuantizedMatrix>> quantized;
  std::vector<TensorView> stored;
  // Weights that must be found among the tensors; empty as soon as they are.
  std::vector<DeclaredWeight> declared_weights;

  // The file's own metadata for listings: (key, value).
  std::vector<std::pair<std::string, std::string>> metadata;

  // The number of bytes that computed storages keep in memory (limited in computed_storages.h).
  std::uint64_t kept_bytes = 0;
};

// Appends the contents of `part`, except its format, to `whole`, and adjusts the indices. Requires:
// `part` has no joined storages.
void append_contents(FileContents& whole, FileContents part);

struct Checkpoint::Contents {
  explicit Contents(std::filesystem::path scratch_dir)
      : inflated(std::make_shared<InflatedStorages>(std::move(scratch_dir))) {}
  FileContents all;
  std::vector<std::uint32_t> arguments;  // for each tensor, the index of its argument
  std::vector<OverlaidTensor> overlaid;
  std::vector<CheckpointFile> files;  // all.files in the form that callers get
  // Number of tensors at the end of `all` that CheckpointAccess::append_existing() added.
  std::size_t given = 0;
  std::vector<std::vector<std::uint32_t>> keys_of;  // Checkpoint::made_of() of the first tensors
  std::shared_ptr<InflatedStorages> inflated;
};

}  // namespace onnx_external
