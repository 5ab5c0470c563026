// Maps the tensors of a GGUF model to the weights of transformers' checkpoint, including the order
// of their rows. A pure function of names, shapes and metadata; it reads no bytes of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_metadata.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "onnx_external/result.h"

namespace onnx_external {

// All weights of a model, in the order of the architecture's table, layer after layer. kUnsupported
// for an architecture that is not supported, and for files without weights, by name; kCorrupt for
// metadata that are missing or do not fit, kMismatch for tensors that are missing or surplus or
// have other shapes than the metadata say.
[[nodiscard]] Result<std::vector<GgufWeight>> name_gguf_weights(const GgufMetadata& metadata,
                                                                std::span<const GgufTensor> tensors,
                                                                std::uint64_t tokens);

}  // namespace onnx_external
