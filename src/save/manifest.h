// Reads and writes the manifest of a saved model, which records the file, range and CRC-32 of each
// tensor. With the manifest, a model can be verified without its checkpoint, and the data of a
// replaced model can be removed file by file. For a single model with one file per tensor, the
// manifest is manifest.json in the data folder. Otherwise, it is next to the model and named after
// the model (has_manifest_in_folder() in save/transaction.h).
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
// "options" are the options of the save, so that a later comparison of the model with a checkpoint
// uses the same options. Options that are not in Mapping::options are not recorded:
//
// {"unmatched": "skip" | "keep"?, "partial": true?, "prefix": TEXT?,
//  "renames": [[PATTERN, REPLACEMENT, EVERY], ...]?, "inputs": [NAME, ...]?, "keep": [NAME, ...]?,
//  "ignore": [RE, ...]?, "derived": {NAME: KEY, ...}?}    (checkpoint/derivation_json.h)
//
// The text depends only on the saved model, so equal saves have equal manifests. A manifest that is
// read is treated as untrusted input. All types are plain values, and all functions may be called
// from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::uint64_t kManifestVersion = 3;
// The maximum size of a manifest. A manifest with a million tensors whose names have a hundred
// bytes has about 300 MB.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

struct ManifestTensor {
  std::string slot;         // name of the initializer, or ExternalTensor::name of another tensor
  std::uint32_t graph = 0;  // see Slot::graph; written if it is not 0
  std::string key;          // key in the checkpoint; empty if the data came with the loaded graph
  std::string rule;         // rule_name(); empty if `key` is empty
  // The file with the data: a plain name in the manifest's folder, FOLDER/NAME in the manifest of a
  // set, or one of Manifest::linked. Empty if the data is inline in the model.
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<std::uint32_t> crc32;  // of the `length` bytes; absent only for linked data
  std::int32_t data_type = 0;          // TensorProto.DataType, as a number under "dtype"
  Shape dims;
  TensorPlace place = TensorPlace::kInitializer;  // written as "sparse" or "attribute"
  Recipe recipe = {};                       // the steps that compute the saved bytes from the key
  std::optional<PackedTensor> packed = {};  // "quantize"
  // The number of values that became infinite in the recipe's cast; written if it is not 0.
  std::uint64_t overflowed = 0;

  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

// A file to which the model refers but which it does not own. It is a file of the checkpoint, or
// data of another model, and is never removed with the model.
struct LinkedFile {
  std::string file;  // location relative to the model's folder
  std::uint64_t bytes = 0;

  friend bool operator==(const LinkedFile&, const LinkedFile&) = default;
};

// One of the models that were saved together as a set, including the model that the manifest
// describes.
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

// Formats the tensors of a manifest one by one, so that not all of them need to be in memory as
// values. For use by one thread at a time.
class ManifestLines {
 public:
  // `tensors` is the approximate number of tensors that will be added.
  explicit ManifestLines(std::size_t tensors = 0);
  void add(const ManifestTensor& tensor);

  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

[[nodiscard]] std::string manifest_text(const Manifest& manifest);
// Returns the text of a manifest with the tensors in `lines` instead of manifest.tensors.
[[nodiscard]] std::string manifest_text(const Manifest& manifest, ManifestLines lines);

// Returns whether a manifest belongs to this model. Reads only the beginning of the text
// (kManifestHeadBytes are sufficient), because parsing a manifest takes longer than parsing its
// model. Returns nullopt if the text does not begin like the result of manifest_text().
[[nodiscard]] std::optional<bool> begins_as_manifest_of(const SetMember& model,
                                                        std::string_view text);
// The size is sufficient for a name of 255 bytes, which has at most six times as many bytes in
// JSON.
inline constexpr std::size_t kManifestHeadBytes = 2048;

// Parses the result of manifest_text(); unknown members are ignored. On success, every file name is
// a plain name or, for linked files, a safe location. Errors: kCorrupt (the message states the
// index of the tensor); kUnsupported for another version.
[[nodiscard]] Result<Manifest> parse_manifest(std::string_view text);

// Returns the JSON object of the options, or "" if none of the recorded options is set.
[[nodiscard]] std::string options_json(const MappingOptions& options);

// Parses the result of options_json(); unknown members are ignored. Fails with kCorrupt for values
// of another type.
[[nodiscard]] Result<MappingOptions> parse_options(const Json& json);

}  // namespace onnx_external
