// Builds the tree of modules from tensor names: "layer.0.weight" is in the module "layer.0".
//
// Names split at '.' and '/'. The function is pure, and makes at most kMaxModuleDepth nodes per
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inspect/inspect.h"

namespace onnx_external {

// Names are not split beyond this depth: the rest of the name becomes the label of the tensor.
inline constexpr std::size_t kMaxModuleDepth = 32;

// A module, or a tensor in a module. A module that contains only one other module is merged with
// that module ("model.encoder").
struct ModuleNode {
  std::string_view label;  // the node's part of the name; points into the tensor's name
  std::uint64_t bytes = 0;
  std::size_t tensor_count = 0;            // tensors in the module at any depth; 1 for a tensor
  std::vector<std::size_t> children = {};  // indices of nodes, in the order of the tensors
  std::size_t tensor = 0;                  // index of the tensor; for a module, of its first tensor

  [[nodiscard]] bool is_tensor() const { return children.empty(); }
};

// Node 0 is the root, which has no label. `tensors` must outlive the result.
[[nodiscard]] std::vector<ModuleNode> make_module_tree(std::span<const InspectedTensor> tensors);

}  // namespace onnx_external
