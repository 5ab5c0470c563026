// Reads torchao's quantized weights, which are tensor subclasses that wrap the tensors of their
// codes and scales.
//
// Sources: torchao/utils.py (TorchAOBaseTensor), torchao/quantization/quantize_/workflows,
// torchao/prototype/mx_formats, torchao/dtypes (until 0.14). They are pickled as wrapped_tensor.h
// describes. All functions are pure and may be called from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

struct WrappedWeight {
  std::string type;
  Shape shape;  // of the weight
  // The tensors, with the names that torchao's safetensors files have for them: "qdata", "scale".
  std::vector<std::pair<std::string_view, NodeId>> parts;
};

// Reads a weight of a class that is known; nullopt for other nodes. Errors: kUnsupported for a
// variant of the class, or for a tensor in it, that is not known; kCorrupt if a tensor is missing.
[[nodiscard]] Result<std::optional<WrappedWeight>> wrapped_weight(const Pickle& pickle,
                                                                  NodeId node);

}  // namespace onnx_external
