// Finds out whether the result of a matrix product becomes an output of the graph, as in a language
// model's head, or is read by a TopK or ArgMax, as in a router that chooses experts.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/weight_graph.h"

namespace onnx_external {

struct Destiny {
  bool leaves = false;   // becomes an output of the main graph
  bool chooses = false;  // read by a TopK or an ArgMax
};

// Returns, for each value, whether it becomes such an output or is read by a TopK or ArgMax, either
// directly or through nodes that treat all its elements alike and have only constants as other
// inputs (activations, scales, a bias; on the way to a TopK or ArgMax, also reshapes). `known`: for
// each value, whether it is constant. If nodes are not in topological order, not all paths are
// followed. Linear in the size of the graphs.
[[nodiscard]] std::vector<Destiny> list_destinies(const WeightGraph& graph,
                                                  const std::vector<bool>& known);

}  // namespace onnx_external
