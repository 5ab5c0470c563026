// Follows symbolic links in the local cache of the Hugging Face Hub, where the files of a model are
// links into a folder of blobs.
#pragma once

#include <filesystem>
#include <string>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Opens the target of the link `name` in the open folder `folder`, whose path is `path`. The folder
// must be .../snapshots/<revision> or a folder below it. The link must be ../../blobs/<plain name>,
// with an additional "../" for each level below snapshots/<revision>. Errors: kInvalidArgument for
// every other link; kNotFound; kIo.
[[nodiscard]] Result<UniqueFd> open_hub_link(int folder, const std::filesystem::path& path,
                                             const std::string& name);

// Returns the blobs folder of the cache that contains `folder`; empty if `folder` is not in such a
// cache.
[[nodiscard]] std::filesystem::path hub_blobs_of(const std::filesystem::path& folder);

}  // namespace onnx_external
