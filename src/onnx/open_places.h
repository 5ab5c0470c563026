// Finds what a model needs and does not have: names that nothing defines, and tensors without data.
// No runtime opens such a model.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "onnx/tensor_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// A name or a tensor without a value that is no slot, so that no checkpoint can fill it.
struct OpenPlace {
  std::string name;  // as in ListedTensor; "DOMAIN::FUNCTION.NAME" of a name in a function
  std::string form;  // "FLOAT [64, 3]"; empty = not stated
  const char* why = "";
};

// True for a slot without a value: a name that nothing defines, or an initializer without data. The
// inputs of the graph are the caller's.
[[nodiscard]] bool is_open(const Slot& slot);

// Why no runtime opens a model with this slot. Requires: is_open(slot).
[[nodiscard]] const char* why_open(const Slot& slot);

// What is open and no slot: sparse initializers and attributes without data, and, in functions,
// names that nothing defines. Linear in the model. `tensors`: all of the model. `graphs`: how many
// the main graph and its subgraphs are.
[[nodiscard]] std::vector<OpenPlace> open_places(const onnx::ModelProto& model,
                                                 std::span<const ListedTensor> tensors,
                                                 std::size_t graphs);

}  // namespace onnx_external
