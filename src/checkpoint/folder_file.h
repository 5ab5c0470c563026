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
  std::string note;  // says which files are not read, although users may expect it; or empty
};

// Returns the file that transformers' from_pretrained() loads from a folder. This is the file that
// config.json names as transformers_weights. If it names none, it is the first existing file of
// model.safetensors, model.safetensors.index.json, pytorch_model.bin and
// pytorch_model.bin.index.json. If a variant is given, these file names contain the variant. As in
// transformers, entries that are not files (a folder, a broken link) are skipped. Returns nullopt
// if neither these files nor variants of them exist.
//
// File names in config.json must follow the rules for names in a shard index, but may be in
// subfolders. kNotFound also if the folder holds only variants of these files; the message then
// names them. kUnsupported for shards written by torch.distributed training, which transformers
// prefers to all other files; kInvalidArgument, kCorrupt, kIo.
[[nodiscard]] Result<std::optional<FolderFile>> transformers_file(
    const std::filesystem::path& folder, const std::string& variant);

// Fails if the name of a file ("model-00001-of-00002.safetensors") shows that it is one of several
// shards.
[[nodiscard]] Status check_is_whole(const std::filesystem::path& folder, const std::string& name);

}  // namespace onnx_external
