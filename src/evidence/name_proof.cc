#include "evidence/name_proof.h"

#include <algorithm>
#include <utility>

#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

// Returns whether `name` is `end`, or ends with `separator` and `end`.
bool is_or_ends_with(std::string_view name, std::string_view end, char separator) {
  if (!name.ends_with(end) || end.empty()) {
    return false;
  }
  return name.size() == end.size() || name[name.size() - end.size() - 1] == separator;
}

bool ends_meet(std::string_view a, std::string_view b, char separator) {
  return is_or_ends_with(a, b, separator) || is_or_ends_with(b, a, separator);
}

}  // namespace

std::string canonical_name(std::string_view name) {
  return refine(drop_wrappers(std::string(name)));
}

std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                           std::span<const std::uint32_t> keys,
                                           std::span<const std::string_view> names) {
  const std::string wanted = canonical_name(slot);
  std::optional<std::uint32_t> best;
  std::size_t length = 0;
  for (const std::uint32_t key : keys) {
    const std::string name = canonical_name(names[key]);
    const std::size_t common = std::min(name.size(), wanted.size());
    if (!ends_meet(name, wanted, '_') || common < length) {
      continue;
    }
    best = common > length ? std::optional(key) : std::nullopt;
    length = common;
  }
  return best;
}

std::string module_of_node(std::string_view node) {
  if (!node.starts_with('/')) {
    return "";
  }
  std::string path;
  std::string_view last;
  for (node.remove_prefix(1); node.find('/') != std::string_view::npos;) {
    const std::string_view part = node.substr(0, node.find('/'));
    node.remove_prefix(part.size() + 1);
    // A container's child repeats the container's name: "net/net.0".
    const bool repeats = !last.empty() && part.size() > last.size() && part.starts_with(last) &&
                         part[last.size()] == '.';
    if (repeats) {
      path.resize(path.size() - last.size());
    } else if (!path.empty()) {
      path += '.';
    }
    path += part;
    last = part;
  }
  return path;
}

std::optional<std::uint32_t> key_by_module(std::string_view module,
                                           std::span<const std::uint32_t> keys,
                                           std::span<const std::string_view> names) {
  std::optional<std::uint32_t> found;
  for (const std::uint32_t key : keys) {
    if (!ends_meet(module, module_of(names[key]), '.')) {
      continue;
    }
    if (found) {
      return std::nullopt;
    }
    found = key;
  }
  return found;
}

}  // namespace onnx_external
