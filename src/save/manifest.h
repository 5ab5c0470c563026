// Reads and writes the manifest of a saved model, which records the file, range and CRC-32 of each
// tensor. With it, a model can be verified without its checkpoint, and the data of a replaced model
// can be removed file by file. For a single model with one file per tensor, the manifest is
// manifest.json in the data folder; otherwise it is next to the model and named after it
// (has_manifest_in_folder() in save/staging.h).
//
// {"format": "onnx-external-manifest", "version": 3,
//  "model": {"file": "model.onnx", "bytes": 1234, "crc32": "0123abcd"},
//  "options": {...}?,
//  "set": [{"file": "encoder.onnx", "bytes": 1234, "crc32": "0123abcd"}, ...]?,
//  "linked": [{"file": "checkpoint.pt", "bytes": 1234}, ...]?,
//  "tensors": [{"slot", "place"?, "graph"?, "key"?, "rule"?, "recipe"?, "quantize"?, "overflowed"?,
//               "file"?, "offset", "length", "crc32"?, "dtype", "dims"}, ...]}
//
// A tensor with "quantize" is a part of a quantized matrix (packed_json.h).
//
// "options" are those of the save (manifest_options.h).
//
// The text depends only on the saved model, so that equal saves have equal manifests. When a
// manifest is read back, it is treated as hostile input. Plain values; safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::uint64_t kManifestVersion = 3;
// A million tensors with names of a hundred bytes need about 300 MB.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

struct ManifestTensor {
  std::string slot;         // name of the initializer, or ExternalTensor::name of another tensor
  std::uint32_t graph = 0;  // as Slot::graph; written if it is not 0
  std::string key;   // the key in the checkpoint; empty if the data is the loaded graph's own
  std::string rule;  // rule_name(); empty if `key` is empty
  // A plain name in the manifest's folder, FOLDER/NAME in the manifest of a set, or one of
  // Manifest::linked; empty if the data is inline in the model.
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<std::uint32_t> crc32;  // of the `length` bytes; absent only for linked data
  std::int32_t data_type = 0;          // TensorProto.DataType, as a number under "dtype"
  Shape dims;
  TensorPlace place = TensorPlace::kInitializer;  // written as "sparse" or "attribute"
  Recipe recipe = {};  // the steps from the key's bytes to those that are saved
  std::optional<PackedTensor> packed = {};  // "quantize"
  // Number of values that the recipe's cast made infinite; written if it is not 0.
  std::uint64_t overflowed = 0;

  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

// A file to which the model refers but which it does not own: a file of the checkpoint, or data of
// another model. It is never removed with the model.
struct LinkedFile {
  std::string file;  // location relative to the model's folder
  std::uint64_t bytes = 0;

  friend bool operator==(const LinkedFile&, const LinkedFile&) = default;
};

// One of the models that were saved together as a set; this model is one of them.
struct SetMember {
  std::string file;  // plain name, next to this model
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  friend bool operator==(const SetMember&, const SetMember&) = default;
};

struct Manifest {
  std::string model_file;  // plain name, next to the data folder
  std::uint64_t model_bytes = 0;
  std::uint32_t model_crc32 = 0;
  MappingOptions options;          // Mapping::options of the save
  std::vector<SetMember> set;      // written if there are any
  std::vector<LinkedFile> linked;  // by ascending name; written if there are any
  std::vector<ManifestTensor> tensors;

  [[nodiscard]] bool is_linked(std::string_view file) const;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Formats the tensors of a manifest one by one, so that they need not all be in memory as values.
// One thread at a time.
class ManifestLines {
 public:
  // The approximate number of tensors that will follow.
  explicit ManifestLines(std::size_t tensors = 0);
  void add(const ManifestTensor& tensor);

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

[[nodiscard]] std::string manifest_text(const Manifest& manifest);
// Returns the same text, with `lines` instead of manifest.tensors.
[[nodiscard]] std::string manifest_text(const Manifest& manifest, ManifestLines lines);

// Returns whether a manifest belongs to this model. Reads only the beginning of the text
// (kManifestHeadBytes suffice), because parsing a manifest takes longer than parsing its model.
// Nullopt if the text does not begin as manifest_text() writes it.
[[nodiscard]] std::optional<bool> begins_as_manifest_of(const SetMember& model,
                                                        std::string_view text);
// Enough for a name of 255 bytes, which takes at most six times as many bytes in JSON.
inline constexpr std::size_t kManifestHeadBytes = 2048;

// Parses what manifest_text() writes; unknown members are ignored. On success, every file name is a
// plain name or, for linked files, a safe location. kCorrupt (with the tensor's index);
// kUnsupported for another version.
[[nodiscard]] Result<Manifest> parse_manifest(std::string_view text);

}  // namespace onnx_external
