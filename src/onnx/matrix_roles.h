// Determines whether the result of a matrix product becomes an output of the graph, as for the head
// of a language model, or is read by a TopK or ArgMax, as for a router that chooses experts.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/weight_graph.h"

namespace onnx_external {

struct Destiny {
  bool leaves = false;   // becomes an output of the main graph
  bool chooses = false;  // read by a TopK or an ArgMax
};

// Returns, for each value, whether it becomes an output or is read by a TopK or ArgMax, either
// directly or through nodes that treat all elements alike and whose other inputs are constants.
// Such nodes are activations, scales, a bias and, on paths to a TopK or ArgMax, also reshapes.
// `known` states for each value whether it is constant. If nodes are not in topological order, some
// paths are not followed. Takes linear time in the size of the graphs.
[[nodiscard]] std::vector<Destiny> list_destinies(const WeightGraph& graph,
                                                  const std::vector<bool>& known);

}  // namespace onnx_external
