// Reads tensor subclasses that wrap other tensors, such as torch.distributed's DTensor.
//
// Source: torch/_tensor.py (__reduce_ex__), torch/distributed/tensor/_api.py. torch saves them as
// _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, stride, offset,
// layout, device, requires_grad), state); the state holds the wrapped tensors. All functions are
// pure and may be called from any thread.
#pragma once

#include <map>
#include <string_view>

#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/torch_symbols.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// Returns the attributes in a state, which is a dict, or (dict or None, dict of the slots). If one
// is set twice, the last value counts, as in Python.
[[nodiscard]] std::map<std::string_view, NodeId> attributes_of_state(const Pickle& pickle,
                                                                     NodeId state);

// The part of a DTensor that one process held, and the shape of the whole DTensor.
struct LocalTensor {
  NodeId tensor;
  Shape shape;
};

// Reads a DTensor from the arguments of _rebuild_wrapper_subclass and the state. Fails with
// kUnsupported for any other class and for a DTensor whose processes held partial sums; the message
// states the class and how to proceed. Fails with kCorrupt for invalid arguments.
[[nodiscard]] Result<LocalTensor> local_tensor(const Pickle& pickle, Arguments wrapper,
                                               NodeId state);

// Fails with kUnsupported unless the part that the process held has the shape of the whole DTensor.
[[nodiscard]] Status check_whole(const Shape& held, const Shape& whole);

}  // namespace onnx_external
