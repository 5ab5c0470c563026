// Reads sharded Hugging Face checkpoints: *.index.json and the shards next to it.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Opens folder/name. Because `name` comes from an untrusted file or folder, it must be the plain
// name of a regular file. A symbolic link is followed only in Hugging Face's cache
// (base/hub_link.h). Errors: kInvalidArgument, kNotFound, kIo.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_shard(
    const std::filesystem::path& folder, std::string_view name);

// Reads the formats "sharded torch-zip" and "sharded safetensors". The shards are in `folder`, and
// are read in the order in which the index first names them. A shard must hold every tensor that
// the index assigns to it. If other shards also hold that tensor, it is read from the last shard by
// name, as in transformers. Tensors that the index does not mention are also listed, because
// loaders accept them. Fails with kCorrupt if two shards hold such a tensor.
[[nodiscard]] Result<FileContents> read_shard_index(const SourceFile& index,
                                                    const std::filesystem::path& folder,
                                                    const OpenOptions& options);

}  // namespace onnx_external
