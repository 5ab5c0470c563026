// Recognizes models whose weights are rotated, so that the inputs of modules must be rotated as
// well at run time.
#pragma once

#include "checkpoint/quantized/quant_settings.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fails with kUnsupported if the settings of compressed-tensors, GPTQModel, AutoRound or Quark
// state rotations at run time, which the graph of the float model does not do. Rotations that are
// fused into the weights of other modules are no error.
[[nodiscard]] Status refuse_rotations(const QuantSettings& settings);

}  // namespace onnx_external
