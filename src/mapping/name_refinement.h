// Converts names of tensors to the forms in which the mapping compares them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

// Replaces dots by underscores, as exporters do in names of parameters. The length does not change,
// so positions in a name and in its refined form are the same.
[[nodiscard]] std::string refine(std::string_view name);

// Returns the name without the components that module wrappers add: "_orig_mod" (torch.compile),
// "_fsdp_wrapped_module", "_checkpoint_wrapped_module". The result of a non-empty name is never
// empty.
[[nodiscard]] std::string drop_wrappers(std::string name);

// Returns false only if drop_wrappers() would not change the name.
[[nodiscard]] bool may_have_wrappers(std::string_view name);

// Returns the positions at which a component other than the first starts: after '.' and '/', or
// after '_' in a name that has neither, such as a refined name. They are in ascending order, and
// only the first kMaxBoundaries are returned.
[[nodiscard]] std::vector<std::size_t> boundaries(std::string_view name);
inline constexpr std::size_t kMaxBoundaries = 64;

// Does the same for refined names, in which components start after '/' and '_'.
[[nodiscard]] std::vector<std::size_t> refined_boundaries(std::string_view refined);

// "layer1.0" for "layer1.0.bn1"; "" for a name in the root.
[[nodiscard]] std::string_view module_of(std::string_view name);

// Returns whether the last component of the name is typical of parameters (weight, bias, ...). Such
// a name does not belong to a user input.
[[nodiscard]] bool is_parameter_name(std::string_view name);

// Returns "mask" for "mask.1", a form with which torch makes names unique; nullopt for other names.
[[nodiscard]] std::optional<std::string_view> name_before_number(std::string_view name);

}  // namespace onnx_external
