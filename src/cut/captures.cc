#include "cut/captures.h"

#include <algorithm>
#include <string>

#include "base/name_map.h"
#include "base/try.h"
#include "onnx/open_values.h"
#include "onnx_external/model.h"

namespace onnx_external {
namespace {

// Calls visit(graph) for the direct subgraphs of the node. Stops at the first error.
template <typename Visit>
Status for_each_own(const onnx::NodeProto& node, const Visit& visit) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) {
      TRY(visit(attribute.g()));
    }
    for (const onnx::GraphProto& graph : attribute.graphs()) {
      TRY(visit(graph));
    }
  }
  return {};
}

class CaptureFinder {
 public:
  // Recursion is safe here: its depth is bounded by kMaxGraphDepth.
  Status visit(const onnx::GraphProto& graph) {
    if (scopes_.size() == kMaxGraphDepth) {
      return fail(ErrorCode::kUnsupported,
                  "subgraphs are nested more than " + std::to_string(kMaxGraphDepth) + " deep");
    }
    scopes_.push_back(names_in(graph));
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string& input : node.input()) {
        use(input);
      }
      TRY(for_each_own(node, [this](const onnx::GraphProto& inner) { return visit(inner); }));
    }
    for (const onnx::ValueInfoProto& output : graph.output()) {
      use(output.name());
    }
    scopes_.pop_back();
    return {};
  }

  std::vector<std::string_view> take() { return std::move(captures_); }

 private:
  static NameSet names_in(const onnx::GraphProto& graph) {
    NameSet names = names_before_nodes(graph);
    for (const auto& node : graph.node()) {
      names.insert(node.output().begin(), node.output().end());
    }
    return names;
  }

  void use(std::string_view name) {
    const bool is_inner = std::any_of(scopes_.rbegin(), scopes_.rend(),
                                      [&](const NameSet& scope) { return scope.contains(name); });
    if (!name.empty() && !is_inner && known_.insert(name).second) {
      captures_.push_back(name);
    }
  }

  std::vector<NameSet> scopes_;
  NameSet known_;
  std::vector<std::string_view> captures_;
};

}  // namespace

Result<std::vector<std::string_view>> captures_of(const onnx::NodeProto& node) {
  CaptureFinder finder;
  TRY(for_each_own(node, [&](const onnx::GraphProto& graph) { return finder.visit(graph); }));
  return finder.take();
}

void for_each_subgraph(const onnx::NodeProto& node,
                       const std::function<void(const onnx::GraphProto&)>& visit) {
  const auto visit_all = [&](const onnx::GraphProto& graph) -> Status {
    visit(graph);
    for (const onnx::NodeProto& inner : graph.node()) {
      for_each_subgraph(inner, visit);
    }
    return {};
  };
  (void)for_each_own(node, visit_all);
}

}  // namespace onnx_external
