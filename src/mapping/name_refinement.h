// Converts names of tensors to the forms in which the mapping compares them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

// Returns the refined form of a name, in which dots are replaced by underscores, as exporters do in
// names of parameters. The length stays the same, so positions in a name are also positions in its
// refined form.
[[nodiscard]] std::string refine(std::string_view name);

// Returns the name without the components that module wrappers add: "_orig_mod" (torch.compile),
// "_fsdp_wrapped_module", "_checkpoint_wrapped_module". The result of a non-empty name is never
// empty.
[[nodiscard]] std::string drop_wrappers(std::string name);

// Returns whether drop_wrappers() may change the name. If the result is false, it does not.
[[nodiscard]] bool may_have_wrappers(std::string_view name);

// Returns the positions at which components start, except the first component. Components start
// after '.' and '/', or after '_' in a name that has neither, such as a refined name. Positions are
// in ascending order, and only the first kMaxBoundaries are returned.
[[nodiscard]] std::vector<std::size_t> boundaries(std::string_view name);
inline constexpr std::size_t kMaxBoundaries = 64;

// Returns the positions for refined names, in which components start after '/' and '_'.
[[nodiscard]] std::vector<std::size_t> refined_boundaries(std::string_view refined);

// Returns a name without its last component: "layer1.0" for "layer1.0.bn1", or "" for a name of one
// component.
[[nodiscard]] std::string_view module_of(std::string_view name);

// Returns whether the last component of the name is typical of parameters (weight, bias, ...). Such
// a name does not belong to a user input.
[[nodiscard]] bool is_parameter_name(std::string_view name);

// Returns the name without the number that torch appends to make names unique: "mask" for "mask.1".
// Returns nullopt for other names.
[[nodiscard]] std::optional<std::string_view> name_before_number(std::string_view name);

}  // namespace onnx_external
