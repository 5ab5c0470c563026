// GGUF files as checkpoints: the model of one file, or of several that belong together, as tensors
// under the names and in the layout of transformers.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Formats "gguf" and "sharded gguf". `file` is the first part of a model in several files; the
// others lie beside it. Blocks are listed as float32 tensors. With OpenOptions::stored_parts, and
// with Selection::kEverything for a model that cannot be named, the tensors are those of the files.
// kUnsupported, kCorrupt, kMismatch, kNotFound, kIo.
[[nodiscard]] Result<FileContents> read_gguf(std::shared_ptr<const SourceFile> file,
                                             const OpenOptions& options);

}  // namespace onnx_external
