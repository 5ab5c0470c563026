// Finds out whether the result of a product reaches an output of the graph, or a TopK or ArgMax.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/weight_graph.h"

namespace onnx_external {

struct Destiny {
  bool leaves = false;   // it is an output of the main graph
  bool chooses = false;  // a TopK or an ArgMax reads it
};

// Returns, for each value, whether it reaches such an end through nodes that treat its elements
// alike, with constants at most (activations, scales, a bias; before a choice, also through
// reshapes). `known`: of each value, whether it is constant. Nodes that are not in topological
// order are followed in part only. Linear in the size of the graphs.
[[nodiscard]] std::vector<Destiny> list_destinies(const WeightGraph& graph,
                                                  const std::vector<bool>& known);

}  // namespace onnx_external
