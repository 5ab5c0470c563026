// Finds initializers that have the same name as another value of their graph. onnx rejects such
// models; runtimes reject them or use one of the two. A subgraph may reuse a name of an outer
// graph, in which case every runtime uses the inner value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/graph_list.h"

namespace onnx_external {

struct DuplicateName {
  std::uint32_t graph = 0;  // index into the list of graphs
  std::string_view name;    // points into the model
  std::string message;      // describes both values, and says how to proceed
};

// Returns the duplicate names in all graphs in the order of the graphs. Each name occurs once per
// graph. An initializer with the name of an input of its graph is not a duplicate, but the default
// value of the input. Takes linear time in the size of the model.
[[nodiscard]] std::vector<DuplicateName> find_duplicate_names(std::span<const GraphNode> graphs);

}  // namespace onnx_external
