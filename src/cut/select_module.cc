#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "cut/captures.h"
#include "cut/selection.h"
#include "cut/value_graph.h"
#include "onnx/exporter_marks.h"
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

// Finds the nodes whose values follow from initializers alone. By NodeId: true for operators of
// ONNX itself that read initializers and values of such nodes only, and give the same result each
// time. Nodes with subgraphs do not count.
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

// Where a node stands relative to a module.
enum class Side : std::uint8_t { kOutside, kInside, kUnknown };  // kUnknown: of no module

// Decides whether a node is inside the selected module.
class ModuleName {
 public:
  // If `as_container` is true, the name selects the modules inside it. An empty name selects the
  // whole model, which contains all nodes.
  ModuleName(const std::string& name, bool as_container)
      : name_(name), inner_(as_container ? name + "." : "") {}

  [[nodiscard]] Side side_of(const onnx::NodeProto& node) const {
    if (name_.empty()) {
      return Side::kInside;
    }
    const std::vector<std::string> scopes = module_scopes(node);
    if (scopes.empty()) {
      return Side::kUnknown;
    }
    const bool is_in = std::any_of(scopes.begin(), scopes.end(), [&](const std::string& scope) {
      return inner_.empty() ? scope == name_ : scope.starts_with(inner_);
    });
    return is_in ? Side::kInside : Side::kOutside;
  }

  // Returns whether a node inside a subgraph of `node` is in the module.
  [[nodiscard]] bool is_hidden_in(const onnx::NodeProto& node) const {
    bool hidden = false;
    for_each_subgraph(node, [&](const onnx::GraphProto& graph) {
      hidden = hidden || std::any_of(graph.node().begin(), graph.node().end(),
                                     [&](const onnx::NodeProto& inner) {
                                       return side_of(inner) == Side::kInside;
                                     });
    });
    return hidden;
  }

 private:
  const std::string& name_;
  std::string inner_;
};

Error no_such_module(const ValueGraph& graph, const std::string& module) {
  std::set<std::string> modules;
  for (const onnx::NodeProto& node : graph.graph().node()) {
    std::vector<std::string> scopes = module_scopes(node);
    modules.insert(std::make_move_iterator(scopes.begin()), std::make_move_iterator(scopes.end()));
  }
  if (modules.empty()) {
    return {ErrorCode::kNotFound,
            "the graph does not record which modules its nodes belong to; give inputs and outputs "
            "of the piece instead"};
  }
  const std::vector<std::string_view> known(modules.begin(), modules.end());
  return not_found_error("no node belongs to the module " + quote(module), module, known);
}

// Returns where each node of the main graph is relative to a module. Errors: kNotFound if the
// module has no node; kUnsupported if it has a node inside a subgraph of a node outside the module.
class Sides {
 public:
  [[nodiscard]] static Result<std::vector<Side>> of(const ValueGraph& graph,
                                                    const std::string& module) {
    for (const bool as_container : {false, true}) {
      std::vector<Side> sides(graph.node_count());
      TRY_ASSIGN(const bool found, find(graph, ModuleName(module, as_container), module, sides));
      if (found) {
        return sides;
      }
    }
    return fail(no_such_module(graph, module));
  }

 private:
  static Result<bool> find(const ValueGraph& graph, const ModuleName& name,
                           const std::string& module, std::vector<Side>& sides) {
    bool found = false;
    for (NodeId node = 0; node < graph.node_count(); ++node) {
      const onnx::NodeProto& proto = graph.graph().node(static_cast<int>(node));
      sides[node] = name.side_of(proto);
      found = found || sides[node] == Side::kInside;
      if (sides[node] != Side::kInside && name.is_hidden_in(proto)) {
        return fail(
            ErrorCode::kUnsupported,
            "nodes of the module " + quote(module) + " are inside a subgraph of " +
                graph.node_text(node) +
                ", and a piece cannot begin or end there; cut a module that contains that node");
      }
    }
    return found;
  }
};

class ModuleCut {
 public:
  explicit ModuleCut(const ValueGraph& graph) : graph_(graph) {
    selection_.nodes.resize(graph.node_count());
  }

  Result<CutSelection> select(const std::string& module, const std::vector<std::string>& without) {
    TRY(find_nodes(module, without));
    take_nodes_between();
    list_outputs();
    if (selection_.outputs.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "nothing outside the module " + quote(module) + " uses the results of its nodes");
    }
    take_constants();
    TRY(list_inputs());
    find_fed_back();
    return std::move(selection_);
  }

 private:
  Status find_nodes(const std::string& module, const std::vector<std::string>& without) {
    TRY_ASSIGN(sides_, Sides::of(graph_, module));
    for (const std::string& inner : without) {
      TRY_ASSIGN(const auto inside, Sides::of(graph_, inner));
      bool found = false;
      for (NodeId node = 0; node < graph_.node_count(); ++node) {
        if (inside[node] == Side::kInside && sides_[node] == Side::kInside) {
          sides_[node] = Side::kOutside;
          found = true;
        }
      }
      if (!found) {
        return fail(ErrorCode::kInvalidArgument,
                    "the module " + quote(inner) +
                        " cannot be left out, because it has no node in " + quote(module));
      }
    }
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      selection_.nodes[node] = sides_[node] == Side::kInside;
    }
    return {};
  }

  // Adds the nodes that belong to no module and are on a path from one node of the module to
  // another, if all nodes on this path belong to no module.
  void take_nodes_between() {
    std::vector<bool> after(graph_.values().size());
    std::vector<bool> before(graph_.values().size());
    std::vector<bool> is_after(graph_.node_count());
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      is_after[node] = sides_[node] == Side::kUnknown && has_any(graph_.reads(node), after);
      if (is_after[node] || sides_[node] == Side::kInside) {
        mark(graph_.outputs(node), after);
      }
    }
    for (auto node = static_cast<NodeId>(graph_.node_count()); node-- > 0;) {
      const bool is_before =
          sides_[node] == Side::kUnknown && has_any(graph_.outputs(node), before);
      if (is_before || sides_[node] == Side::kInside) {
        mark(graph_.reads(node), before);
      }
      if (is_before && is_after[node]) {
        selection_.nodes[node] = true;
      }
    }
  }

  // The outputs of the piece: values that its nodes compute and that others use.
  void list_outputs() {
    std::vector<bool> is_used(graph_.values().size());
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      if (!selection_.nodes[node]) {
        mark(graph_.reads(node), is_used);
      }
    }
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      for (const ValueId output : graph_.outputs(node)) {
        if (selection_.nodes[node] && output != kNoValue &&
            (is_used[output] || graph_.is_graph_output(output))) {
          selection_.outputs.push_back(output);
        }
      }
    }
  }

  // Nodes that compute constants from initializers alone are included in the piece. As an input the
  // value would not be constant any more, and some operators need constants.
  void take_constants() {
    const std::vector<bool> is_constant = find_constant_nodes(graph_);
    std::vector<bool> needed(graph_.values().size());
    for (auto node = static_cast<NodeId>(graph_.node_count()); node-- > 0;) {
      if (is_constant[node] && has_any(graph_.outputs(node), needed)) {
        selection_.nodes[node] = true;
      }
      if (selection_.nodes[node]) {
        mark(graph_.reads(node), needed);
      }
    }
  }

  Status list_inputs() {
    std::vector<bool> is_listed(graph_.values().size());
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      for (const ValueId read : graph_.reads(node)) {
        if (!selection_.nodes[node] || read == kNoValue || is_listed[read]) {
          continue;
        }
        is_listed[read] = true;
        const auto [name, source, index] = graph_[read];
        if (source == ValueSource::kUndefined) {
          return fail(undefined_error(graph_, node, read));
        }
        if (source == ValueSource::kInput ||
            (source == ValueSource::kNode && !selection_.nodes[index])) {
          selection_.inputs.push_back(read);
        }
      }
    }
    return {};
  }

  void find_fed_back() {
    std::vector<bool> depends(graph_.values().size());
    for (const ValueId output : selection_.outputs) {
      depends[output] = true;
    }
    for (NodeId node = 0; node < graph_.node_count(); ++node) {
      if (!selection_.nodes[node] && has_any(graph_.reads(node), depends)) {
        mark(graph_.outputs(node), depends);
      }
    }
    for (const ValueId input : selection_.inputs) {
      if (depends[input]) {
        selection_.fed_back.push_back(input);
      }
    }
  }

  static bool has_any(std::span<const ValueId> values, const std::vector<bool>& marks) {
    return std::any_of(values.begin(), values.end(),
                       [&](ValueId value) { return value != kNoValue && marks[value]; });
  }

  static void mark(std::span<const ValueId> values, std::vector<bool>& marks) {
    for (const ValueId value : values) {
      if (value != kNoValue) {
        marks[value] = true;
      }
    }
  }

  const ValueGraph& graph_;
  std::vector<Side> sides_;  // by node
  CutSelection selection_;
};

}  // namespace

Result<CutSelection> select_module(const ValueGraph& graph, const std::string& module,
                                   const std::vector<std::string>& without) {
  return ModuleCut(graph).select(module, without);
}

}  // namespace onnx_external
