// Reads tensor subclasses that wrap other tensors, such as torch.distributed's DTensor and
// quantized weights.
//
// Source: torch/_tensor.py (__reduce_ex__), torch/distributed/tensor/_api.py. torch saves them as
// _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, stride, offset,
// layout, device, requires_grad), state); the state holds the wrapped tensors. Pure functions, safe
// from any thread.
#pragma once

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The tensor that one process held, and the shape that it must have to be the whole DTensor.
struct LocalTensor {
  NodeId tensor;
  Shape shape;
};

// Reads a DTensor from the arguments of _rebuild_wrapper_subclass and the state. kUnsupported, with
// the class and what to do, for any other class and for a DTensor whose processes held partial
// sums; kCorrupt.
[[nodiscard]] Result<LocalTensor> local_tensor(const Pickle& pickle, Arguments wrapper,
                                               NodeId state);

// kUnsupported unless the tensor that the process held has the shape of the whole tensor.
[[nodiscard]] Status check_whole(const Shape& held, const Shape& whole);

}  // namespace onnx_external
