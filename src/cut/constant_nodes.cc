#include "cut/constant_nodes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "onnx/graph_list.h"

namespace onnx_external {
namespace {

// Source: the operators of ONNX with an attribute `seed`, and those that read a sequence's random
// state. Dropout is random only while training.
constexpr auto kRandomOperators =
    std::to_array<std::string_view>({"Bernoulli", "Dropout", "Multinomial", "RandomNormal",
                                     "RandomNormalLike", "RandomUniform", "RandomUniformLike"});

bool may_be_constant(const onnx::NodeProto& node) {
  return is_default_domain(node) && !has_subgraphs(node) &&
         std::find(kRandomOperators.begin(), kRandomOperators.end(), node.op_type()) ==
             kRandomOperators.end();
}

}  // namespace

std::vector<bool> find_constant_nodes(const ValueGraph& graph) {
  std::vector<bool> constant(graph.node_count());
  for (NodeId node = 0; node < graph.node_count(); ++node) {
    const auto reads = graph.reads(node);
    const bool reads_constants = std::all_of(reads.begin(), reads.end(), [&](ValueId read) {
      if (read == kNoValue) {
        return true;
      }
      const GraphValue& value = graph[read];
      return value.source == ValueSource::kInitializer || value.source == ValueSource::kSparse ||
             (value.source == ValueSource::kNode && constant[value.index]);
    });
    constant[node] = reads_constants && may_be_constant(graph.graph().node(static_cast<int>(node)));
  }
  return constant;
}

}  // namespace onnx_external
