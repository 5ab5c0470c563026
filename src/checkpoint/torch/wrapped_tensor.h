// Reads tensor subclasses that wrap other tensors, such as DTensor of torch.distributed and
// quantized weights.
//
// Source: torch/_tensor.py (__reduce_ex__), torch/distributed/tensor/_api.py. torch saves them as
// _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, stride, offset,
// layout, device, requires_grad), state); the state has the tensors that are wrapped. Pure; any
// thread.
#pragma once

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The tensor that a process held, and the shape that it must have to be all of the DTensor.
struct LocalTensor {
  NodeId tensor;
  Shape shape;
};

// From the arguments of _rebuild_wrapper_subclass and the state. kUnsupported, with the class and
// the fix, for any other class and for a DTensor whose processes held summands; kCorrupt.
[[nodiscard]] Result<LocalTensor> local_tensor(const Pickle& pickle, Arguments wrapper,
                                               NodeId state);

// kUnsupported unless the tensor that is held has the shape of the whole one.
[[nodiscard]] Status check_whole(const Shape& held, const Shape& whole);

}  // namespace onnx_external
