#include "onnx/graph_list.h"

#include <cstddef>
#include <string>

#include "base/try.h"
#include "onnx_external/model.h"

namespace onnx_external {
namespace {

// Recursion is safe here: its depth is bounded by kMaxGraphDepth.
Status visit(const onnx::GraphProto& graph, std::uint32_t parent, std::size_t depth,
             std::vector<GraphNode>& list) {
  if (depth > kMaxGraphDepth) {
    return fail(ErrorCode::kUnsupported,
                "subgraphs are nested more than " + std::to_string(kMaxGraphDepth) + " deep");
  }
  const auto self = static_cast<std::uint32_t>(list.size());
  list.push_back({&graph, parent});
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) {
        TRY(visit(attribute.g(), self, depth + 1, list));
      }
      for (const onnx::GraphProto& each : attribute.graphs()) {
        TRY(visit(each, self, depth + 1, list));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<GraphNode>> list_graphs(const onnx::GraphProto& main) {
  std::vector<GraphNode> list;
  TRY(visit(main, 0, 0, list));
  return list;
}

}  // namespace onnx_external
