// Chooses the checkpoint file in a folder, as transformers does.
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
  std::string note;  // a sentence about files that users may expect to be read; or empty
};

// Returns the file that transformers' from_pretrained() loads from a folder. This is the file that
// config.json names as transformers_weights; otherwise the first of model.safetensors,
// model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json that exists,
// with the variant in the name if one is given. As in transformers, entries that are not files (a
// folder, a broken link) are skipped. Returns nullopt if none of these files exists, and no variant
// of them either.
//
// File names in config.json must follow the rules for names in a shard index, but may be in
// subfolders. kNotFound also if the folder holds only variants of these files; the message then
// names them. kUnsupported for shards written by torch.distributed training, which transformers
// would read before any others; kInvalidArgument, kCorrupt, kIo.
[[nodiscard]] Result<std::optional<FolderFile>> transformers_file(
    const std::filesystem::path& folder, const std::string& variant);

// Rejects a file that is one of several shards according to its name
// ("model-00001-of-00002.safetensors").
[[nodiscard]] Status check_is_whole(const std::filesystem::path& folder, const std::string& name);

}  // namespace onnx_external
