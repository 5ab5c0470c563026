// Finds initializers that share their name with another value of their graph. onnx refuses such
// models; runtimes refuse them or take one of the two. A name of an outer graph may be used again
// in a subgraph: there every runtime takes the inner value.
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
  std::string message;      // both places, and what to do
};

// Returns the duplicate names of all graphs, once each, in the order of the graphs. An initializer
// with the name of an input of its graph is not a duplicate, but the input's default value. Linear
// in the size of the model.
[[nodiscard]] std::vector<DuplicateName> find_duplicate_names(std::span<const GraphNode> graphs);

}  // namespace onnx_external
