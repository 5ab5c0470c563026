// Reads GGUF models, in one file or in several parts, as checkpoints. The tensors get the names and
// the layout that they have in transformers.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Reads the formats "gguf" and "sharded gguf". If the model has several files, `file` is the first
// part, and the other parts are in the same folder. Quantized blocks are listed as float32 tensors.
// Tensors are listed as the files store them with OpenOptions::stored_parts, and, with
// Selection::kEverything, if the model cannot be mapped to transformers' names. Errors:
// kUnsupported, kCorrupt, kMismatch, kNotFound, kIo.
[[nodiscard]] Result<FileContents> read_gguf(std::shared_ptr<const SourceFile> file,
                                             const OpenOptions& options);

}  // namespace onnx_external
