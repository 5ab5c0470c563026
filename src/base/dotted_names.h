// Looks for parts of names that consist of components with dots between them, such as the names of
// modules and tensors.
#pragma once

#include <string_view>

namespace onnx_external {

// Returns whether `part`, one or more whole components, stands anywhere in the name.
[[nodiscard]] inline bool contains_components(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos;
       at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) {
      return true;
    }
  }
  return false;
}

}  // namespace onnx_external
