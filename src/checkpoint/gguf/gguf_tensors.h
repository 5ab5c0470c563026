// Lists the tensors of a GGUF model: their shapes and types, and how their bytes are read.
#pragma once

#include <span>

#include "checkpoint/gguf/gguf_parts.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Lists the tensors as the files store them, with their names and layout in the file. Quantized
// blocks are listed as float32.
[[nodiscard]] Result<FileContents> list_stored_gguf(const GgufModel& model);

// Lists the weights with the names and the layout that they have in transformers. kUnsupported for
// stored types that do not fit.
[[nodiscard]] Result<FileContents> list_gguf_weights(const GgufModel& model,
                                                     std::span<const GgufWeight> weights);

}  // namespace onnx_external
