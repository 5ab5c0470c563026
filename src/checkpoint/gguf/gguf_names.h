// Maps the tensors in a GGUF model to the weights of transformers' checkpoint, including the order
// of their rows. Pure: uses only names, shapes and metadata, and reads no tensor data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns all weights of a model, in the order of the architecture's table, layer by layer.
// kUnsupported for an unsupported architecture, which the message names, and for files without
// weights; kCorrupt for metadata that are missing or do not fit; kMismatch for tensors that are
// missing, unexpected, or of other shapes than the metadata state.
[[nodiscard]] Result<std::vector<GgufWeight>> name_gguf_weights(const GgufMetadata& metadata,
                                                                std::span<const GgufTensor> tensors,
                                                                std::uint64_t tokens);

}  // namespace onnx_external
