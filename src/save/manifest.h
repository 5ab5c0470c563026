// The manifest of a saved model: it records file, range and CRC-32 of each tensor. A model can then
// be verified without its checkpoint, and an old generation can be removed file by file. It is
// called manifest.json in the data folder of a single model with a file per tensor, and otherwise
// lies beside the model, called after it (has_manifest_in_folder() in save/staging.h).
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
// The text depends on the saved model alone: equal saves have equal manifests. When it is read
// back, it is treated as hostile input. Plain values; safe from any thread.
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
  std::string slot;         // name of the initializer, or of another tensor (ExternalTensor::name)
  std::uint32_t graph = 0;  // as Slot::graph; written when it is not 0
  std::string key;          // the key in the checkpoint; empty: the loaded graph's own data
  std::string rule;         // rule_name(); empty as key
  // A plain name in the manifest's folder, FOLDER/NAME in the manifest of a set, or one of
  // Manifest::linked; empty: inline in the model.
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<std::uint32_t> crc32;  // of the `length` bytes; absent for linked ones only
  std::int32_t data_type = 0;          // TensorProto.DataType, as a number under "dtype"
  Shape dims;
  TensorPlace place = TensorPlace::kInitializer;  // written as "sparse" and "attribute"
  Recipe recipe = {};                             // how the bytes are made from the key's
  std::optional<PackedTensor> packed = {};        // "quantize"
  std::uint64_t overflowed = 0;  // values that the recipe's cast made infinite; written when not 0

  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

// A file that the model refers to and that is not its own: the checkpoint's, or another model's
// data. It is never removed with the model.
struct LinkedFile {
  std::string file;  // location relative to the model's folder
  std::uint64_t bytes = 0;

  friend bool operator==(const LinkedFile&, const LinkedFile&) = default;
};

// A model of the set that this one was saved with, itself included.
struct SetMember {
  std::string file;  // plain name, beside this model
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;

  friend bool operator==(const SetMember&, const SetMember&) = default;
};

struct Manifest {
  std::string model_file;  // plain name, beside the data folder
  std::uint64_t model_bytes = 0;
  std::uint32_t model_crc32 = 0;
  MappingOptions options;          // the save's Mapping::options
  std::vector<SetMember> set;      // written when there are any
  std::vector<LinkedFile> linked;  // by rising name, written when there are any
  std::vector<ManifestTensor> tensors;

  [[nodiscard]] bool is_linked(std::string_view file) const;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Turns the tensors of a manifest into text one by one, so that they need not all be in memory as
// values. One thread at a time.
class ManifestLines {
 public:
  explicit ManifestLines(std::size_t tensors = 0);  // about so many are to come
  void add(const ManifestTensor& tensor);

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

[[nodiscard]] std::string manifest_text(const Manifest& manifest);
// The same with `lines` instead of manifest.tensors.
[[nodiscard]] std::string manifest_text(const Manifest& manifest, ManifestLines lines);

// Returns whether a manifest is this model's. Looks only at the beginning of the text
// (kManifestHeadBytes suffice), because parsing a manifest takes longer than parsing its model.
// Nullopt when it does not begin as manifest_text() writes it.
[[nodiscard]] std::optional<bool> begins_as_manifest_of(const SetMember& model,
                                                        std::string_view text);
// A name of 255 bytes takes at most six times as many in JSON.
inline constexpr std::size_t kManifestHeadBytes = 2048;

// Reads what manifest_text() writes; members that it does not know are ignored. Every file name is
// a plain one when this succeeds, or a safe location for linked files. kCorrupt (with the tensor's
// index); kUnsupported for another version.
[[nodiscard]] Result<Manifest> parse_manifest(std::string_view text);

}  // namespace onnx_external
