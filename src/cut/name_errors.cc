#include "cut/name_errors.h"

#include <cstddef>
#include <vector>

#include "base/nearest_names.h"
#include "base/text.h"

namespace onnx_external {

Error not_found_error(std::string what, std::string_view name,
                      std::span<const std::string_view> known) {
  constexpr std::size_t kMostShown = 3;
  std::vector<std::string> nearest;
  for (const std::size_t i : NearestNames().of(name, known, kMostShown)) {
    nearest.emplace_back(known[i]);
  }
  if (!nearest.empty()) {
    what += "; did you mean " + quote_list(nearest, kMostShown) + "?";
  }
  return {ErrorCode::kNotFound, std::move(what)};
}

Error undefined_error(const ValueGraph& graph, NodeId node, ValueId value) {
  return {ErrorCode::kCorrupt, graph.node_text(node) + " reads " + quote(graph[value].name) +
                                   ", which nothing defines; if it is a weight, save the model "
                                   "with its weights first"};
}

}  // namespace onnx_external
