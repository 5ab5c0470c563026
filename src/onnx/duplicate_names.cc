#include "onnx/duplicate_names.h"

#include <cstddef>
#include <string>

#include "base/name_map.h"
#include "base/text.h"
#include "onnx/external_data.h"
#include "onnx/tensor_list.h"

namespace onnx_external {
namespace {

// "in 'w.bin' at byte 64".
std::string place_text(const onnx::TensorProto& tensor) {
  if (!is_external(tensor)) {
    return "inside the model";
  }
  const ExternalEntry entry = read_external_entry(tensor);
  return "in " + quote(entry.location) + " at byte " + std::to_string(entry.offset);
}

std::string node_text(const onnx::NodeProto& node) {
  return (node.name().empty() ? "a node" : "node " + quote(node.name())) + " of type " +
         quote(node.op_type());
}

// "the graph 'body', 'then_branch' of node 'n' of type 'If'".
std::string graph_text(std::span<const GraphNode> graphs, std::uint32_t g) {
  std::string text = "the graph " + quote(graphs[g].graph->name());
  const auto holds = [&](const onnx::AttributeProto& attribute) {
    bool found = attribute.has_g() && &attribute.g() == graphs[g].graph;
    for (const auto& graph : attribute.graphs()) {
      found = found || &graph == graphs[g].graph;
    }
    return found;
  };
  for (const auto& node : graphs[graphs[g].parent].graph->node()) {
    for (const auto& attribute : node.attribute()) {
      if (g != 0 && holds(attribute)) {
        return text + ", " + quote(attribute.name()) + " of " + node_text(node);
      }
    }
  }
  return text;
}

// A value of a graph that no other may be called like.
struct Named {
  std::string_view name;
  const onnx::TensorProto* tensor = nullptr;  // null: the output of a node
  const onnx::NodeProto* node = nullptr;
  bool is_sparse = false;

  [[nodiscard]] std::string text() const {
    if (node != nullptr) {
      return "the output of " + node_text(*node);
    }
    return (is_sparse ? "a sparse initializer " : "an initializer ") + place_text(*tensor);
  }
};

class DuplicateFinder {
 public:
  explicit DuplicateFinder(std::span<const GraphNode> graphs) : graphs_(graphs) {}

  std::vector<DuplicateName> find() {
    for (std::uint32_t g = 0; g < graphs_.size(); ++g) {
      visit(g);
    }
    return std::move(duplicates_);
  }

 private:
  void visit(std::uint32_t g) {
    const onnx::GraphProto& graph = *graphs_[g].graph;
    if (graph.initializer_size() + graph.sparse_initializer_size() == 0) {
      return;
    }
    std::vector<Named> named;
    NameIndexSet known([&](std::uint32_t i) { return named[i].name; },
                       static_cast<std::size_t>(graph.initializer_size()));
    NameSet reported;
    const auto take = [&](const Named& value) {
      const auto next = static_cast<std::uint32_t>(named.size());
      named.push_back(value);
      const std::uint32_t first = value.name.empty() ? next : known.add(next);
      if (first != next && reported.insert(value.name).second) {
        report(g, named[first], value);
      }
    };
    for (const auto& tensor : graph.initializer()) {
      take({tensor.name(), &tensor});
    }
    for (const auto& sparse : graph.sparse_initializer()) {
      take({sparse.values().name(), &sparse.values(), nullptr, true});
    }
    for (const auto& node : graph.node()) {
      for (const std::string& output : node.output()) {
        if (const auto first = known.find(output);
            first && !output.empty() && reported.insert(output).second) {
          report(g, named[*first], {output, nullptr, &node});
        }
      }
    }
  }

  void report(std::uint32_t g, const Named& first, const Named& second) {
    duplicates_.push_back({g, first.name,
                           "the name occurs twice in " + graph_text(graphs_, g) + ": " +
                               first.text() + ", and " + second.text() +
                               ", and runtimes use one of them or reject the model; remove the "
                               "wrong one, or use the model that this model was made from"});
  }

  std::span<const GraphNode> graphs_;
  std::vector<DuplicateName> duplicates_;
};

}  // namespace

std::vector<DuplicateName> find_duplicate_names(std::span<const GraphNode> graphs) {
  return DuplicateFinder(graphs).find();
}

}  // namespace onnx_external
