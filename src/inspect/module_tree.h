// The modules that tensor names spell: "layer.0.weight" lies in the module "layer.0".
//
// Names split at '.' and '/'. Pure; memory is at most kMaxModuleDepth nodes a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "inspect/inspect.h"

namespace onnx_external {

// What a name has beyond so many modules stays together, as the last part of it.
inline constexpr std::size_t kMaxModuleDepth = 32;

// A module, or a tensor in one. A module that holds nothing but one other is one with it
// ("model.encoder").
struct ModuleNode {
  std::string_view label;  // its part of the name; points into the tensor's
  std::uint64_t bytes = 0;
  std::size_t tensor_count = 0;            // in it at any depth; 1 for a tensor
  std::vector<std::size_t> children = {};  // indexes of nodes, in the order of the tensors
  std::size_t tensor = 0;                  // index of the tensor, of the first one for a module

  [[nodiscard]] bool is_tensor() const { return children.empty(); }
};

// Node 0 is the root, which has no label. `tensors` must outlive the result.
[[nodiscard]] std::vector<ModuleNode> make_module_tree(std::span<const InspectedTensor> tensors);

}  // namespace onnx_external
