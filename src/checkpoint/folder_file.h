// Chooses the file of a folder that is its checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct FolderFile {
  std::shared_ptr<const SourceFile> file;
  std::string note;  // a sentence about files that a reader of the folder may expect; or empty
};

// Returns the file that transformers' from_pretrained() loads from a folder: the one that
// config.json names as transformers_weights, else the first that exists of model.safetensors,
// model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json, or of these
// names with the variant in them. As there, entries that are not files (a folder, a broken link)
// are skipped. Returns nullopt if none of them exists and there is no variant.
//
// Names in config.json must follow the rules for names in a shard index, but may be in subfolders.
// kNotFound also if the folder holds only files of variants, which the message then names;
// kUnsupported for shards written by a training with torch.distributed, which transformers reads
// before all others; kInvalidArgument, kCorrupt, kIo.
[[nodiscard]] Result<std::optional<FolderFile>> transformers_file(
    const std::filesystem::path& folder, const std::string& variant);

// Refuses a file that is one shard of several, by its name ("model-00001-of-00002.safetensors").
[[nodiscard]] Status check_is_whole(const std::filesystem::path& folder, const std::string& name);

}  // namespace onnx_external
