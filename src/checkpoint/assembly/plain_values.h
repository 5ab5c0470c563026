// Converts plain values in a pickle to small tensors, as HQQ stores them in safetensors files.
#pragma once

#include "checkpoint/assembly/quantizer_numbers.h"
#include "checkpoint/pickle/pickle.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

struct PlainValue {
  Shape shape;
  Numbers numbers;
};

// Returns a bool as a byte, an integer or a torch.Size as int64, and a string as its bytes. Errors:
// kCorrupt for other nodes and for an invalid torch.Size; kUnsupported for long strings.
[[nodiscard]] Result<PlainValue> plain_value(const Pickle& pickle, NodeId id);

}  // namespace onnx_external
