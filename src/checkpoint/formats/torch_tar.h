// Reads checkpoints written by torch 0.1.1 to 0.1.9: a tar file with the members storages, tensors
// and pickle.
//
// Source: torch/serialization.py, legacy_load.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reads the format "torch-tar". The result has one Storage, a plain range of the file, for each
// storage that a listed tensor views. Errors: kCorrupt; kUnsupported for any other tar file.
[[nodiscard]] Result<FileContents> read_torch_tar(std::shared_ptr<const SourceFile> file,
                                                  const OpenOptions& options);

}  // namespace onnx_external
