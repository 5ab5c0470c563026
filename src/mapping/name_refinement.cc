#include "mapping/name_refinement.h"

#include <algorithm>
#include <array>

namespace onnx_external {
namespace {

constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                                       "_checkpoint_wrapped_module"};
constexpr std::array<std::string_view, 4> kParameters = {"weight", "bias", "running_mean",
                                                         "running_var"};

std::vector<std::size_t> starts_after(std::string_view name, std::string_view separators) {
  std::vector<std::size_t> starts;
  for (std::size_t at = name.find_first_of(separators);
       at != std::string_view::npos && starts.size() < kMaxBoundaries;
       at = name.find_first_of(separators, at + 1)) {
    if (at + 1 < name.size()) {
      starts.push_back(at + 1);
    }
  }
  return starts;
}

}  // namespace

std::string refine(std::string_view name) {
  std::string refined(name);
  std::replace(refined.begin(), refined.end(), '.', '_');
  return refined;
}

bool may_have_wrappers(std::string_view name) {
  return name.starts_with('_') || name.find("._") != std::string_view::npos;
}

std::string drop_wrappers(std::string name) {
  if (!may_have_wrappers(name)) {
    return name;
  }
  std::string rest;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('.', start), name.size());
    const std::string_view component = std::string_view(name).substr(start, end - start);
    if (std::find(kWrappers.begin(), kWrappers.end(), component) == kWrappers.end()) {
      rest.append(rest.empty() && start == 0 ? "" : ".").append(component);
    }
    start = end + 1;
  }
  if (rest.starts_with('.') && !name.starts_with('.')) {
    rest.erase(0, 1);
  }
  return rest.empty() ? name : rest;
}

std::vector<std::size_t> boundaries(std::string_view name) {
  const bool dotted = name.find_first_of("./") != std::string_view::npos;
  return starts_after(name, dotted ? "./" : "_");
}

std::vector<std::size_t> refined_boundaries(std::string_view refined) {
  return starts_after(refined, "/_");
}

std::string_view module_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

bool is_parameter_name(std::string_view name) {
  return std::any_of(kParameters.begin(), kParameters.end(), [&](std::string_view parameter) {
    return name == parameter ||
           (name.size() > parameter.size() && name.ends_with(parameter) &&
            std::string_view("._/").find(name[name.size() - parameter.size() - 1]) !=
                std::string_view::npos);
  });
}

std::optional<std::string_view> name_before_number(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  const bool numbered = dot != std::string_view::npos && dot > 0 && dot + 1 < name.size() &&
                        name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
  return numbered ? std::optional(name.substr(0, dot)) : std::nullopt;
}

}  // namespace onnx_external
