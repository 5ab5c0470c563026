// Builds the tree of modules from tensor names. For example, "layer.0.weight" is in the module
// "layer.0".
//
// Names are split at '.' and '/'. The function is pure, and creates at most kMaxModuleDepth nodes
// per name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inspect/inspect.h"

namespace onnx_external {

// The maximum depth. The rest of a deeper name becomes the label of the tensor.
inline constexpr std::size_t kMaxModuleDepth = 32;

// A module, or a tensor in a module. A module that contains only one other module is merged with
// that module ("model.encoder").
struct ModuleNode {
  std::string_view label;  // part of a tensor's name, into which it points
  std::uint64_t bytes = 0;
  std::size_t tensor_count = 0;            // tensors in the module at any depth; 1 for a tensor
  std::vector<std::size_t> children = {};  // indices of nodes, in the order of the tensors
  std::size_t tensor = 0;                  // index of the tensor, or of the module's first tensor

  [[nodiscard]] bool is_tensor() const { return children.empty(); }
};

// Returns the nodes of the tree. Node 0 is the root, which has no label. `tensors` must outlive the
// result.
[[nodiscard]] std::vector<ModuleNode> make_module_tree(std::span<const InspectedTensor> tensors);

}  // namespace onnx_external
