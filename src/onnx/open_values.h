// Finds undefined names and tensors without data. No runtime opens a model that has any.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx/tensor_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// An undefined name or a tensor without data that is not a slot, so that no checkpoint can fill it.
struct OpenValue {
  std::string name;  // as in ListedTensor; "DOMAIN::FUNCTION.NAME" of a name in a function
  std::string form;  // "FLOAT [64, 3]"; empty = not stated
  const char* why = "";
};

// True for a slot without a value: an undefined name, or an initializer without data. Graph inputs
// do not count, because the user may supply them.
[[nodiscard]] bool is_open(const Slot& slot);

// Says why no runtime opens a model with this slot. Requires: is_open(slot).
[[nodiscard]] const char* why_open(const Slot& slot);

// Returns sparse initializers and attributes without data, and undefined names in functions. Linear
// in the size of the model. `tensors`: all tensors of the model. `graphs`: the number of graphs,
// which are the main graph and its subgraphs.
[[nodiscard]] std::vector<OpenValue> open_values(const onnx::ModelProto& model,
                                                 std::span<const ListedTensor> tensors,
                                                 std::size_t graphs);

}  // namespace onnx_external
