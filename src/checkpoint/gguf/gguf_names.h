// Maps the tensors in a GGUF model to the weights of the model in transformers, including the order
// of rows. Only names, shapes and metadata are used; tensor data is not read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns all weights of a model, in the order of the architecture's table, layer by layer. Fails
// with kUnsupported for an unsupported architecture, which the message states, and for files
// without weights. Fails with kCorrupt for missing or inconsistent metadata. Fails with kMismatch
// for tensors that are missing or unexpected, or whose shapes contradict the metadata. A pure
// function.
[[nodiscard]] Result<std::vector<GgufWeight>> name_gguf_weights(const GgufMetadata& metadata,
                                                                std::span<const GgufTensor> tensors,
                                                                std::uint64_t tokens);

}  // namespace onnx_external
