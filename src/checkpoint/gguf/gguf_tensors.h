// Lists the tensors of a GGUF model, with their shapes and types and the sources of their bytes.
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

// Lists the weights with the names and the layout that they have in transformers. Fails with
// kUnsupported for a stored type that cannot be converted as required.
[[nodiscard]] Result<FileContents> list_gguf_weights(const GgufModel& model,
                                                     std::span<const GgufWeight> weights);

}  // namespace onnx_external
