// Links of the Hugging Face Hub's cache, where the files of a snapshot are links to blobs.
#pragma once

#include <filesystem>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Opens what the link `name` in an open folder leads to, checking each step by hand: the folder
// must be .../snapshots/<revision>, or one below it, and the link must read ../../blobs/<plain
// name> (with one ".." more for each folder below). `path` is that of the folder. kInvalidArgument
// for every other link, kNotFound, kIo.
[[nodiscard]] Result<UniqueFd> open_hub_link(int folder, const std::filesystem::path& path,
                                             const std::string& name);

// The folder of blobs that files in `folder` may be links to; empty if it is in no such cache.
[[nodiscard]] std::filesystem::path hub_blobs_of(const std::filesystem::path& folder);

}  // namespace onnx_external
