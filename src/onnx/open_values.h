// Finds undefined names and tensors without data. No runtime accepts a model with such names or
// tensors.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/name_map.h"
#include "onnx/graph_facts.h"
#include "onnx/tensor_list.h"
#include "onnx_external/model.h"

namespace onnx_external {

// An undefined name or a tensor without data that no checkpoint can fill, because it is not a slot.
struct OpenValue {
  std::string name;  // as in ListedTensor; for a name in a function, "DOMAIN::FUNCTION.NAME"
  std::string form;  // "FLOAT [64, 3]"; empty if not stated
  const char* why = "";
};

// Returns whether a slot has no value because it is an undefined name or an initializer without
// data. Graph inputs do not count, because the caller may supply them.
[[nodiscard]] bool is_open(const Slot& slot);

// Returns the reason why no runtime accepts a model with this slot. Requires: is_open(slot).
[[nodiscard]] const char* why_open(const Slot& slot);

// Returns the names that a graph defines without its nodes: inputs and initializers. They refer to
// strings of `graph`.
[[nodiscard]] NameSet names_before_nodes(const onnx::GraphProto& graph);

// Returns sparse initializers and attributes without data, and undefined names in functions.
// `tensors` are all tensors in the model. `graphs` is the number of graphs (the main graph and its
// subgraphs). Takes linear time in the size of the model.
[[nodiscard]] std::vector<OpenValue> open_values(const onnx::ModelProto& model,
                                                 std::span<const ListedTensor> tensors,
                                                 std::size_t graphs);

}  // namespace onnx_external
