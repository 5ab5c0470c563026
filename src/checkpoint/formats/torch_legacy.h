// Checkpoints of torch 0.1.10 to 1.5, and of later versions with
// _use_new_zipfile_serialization=False.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Format "torch-legacy". One Storage, a plain range of the file, for each one that a listed tensor
// views. kCorrupt: a storage that is missing, duplicated, past the end of the file, or not of the
// size that its pickle states. kUnsupported: storages of unknown classes.
[[nodiscard]] Result<FileContents> read_torch_legacy(std::shared_ptr<const SourceFile> file,
                                                     const OpenOptions& options);

}  // namespace onnx_external
