#include <string>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "cut/captures.h"
#include "cut/selection.h"
#include "cut/value_graph.h"

namespace onnx_external {
namespace {

// The node whose subgraphs define the name; null if there is none.
const onnx::NodeProto* node_hiding(const onnx::GraphProto& graph, std::string_view name) {
  for (const onnx::NodeProto& node : graph.node()) {
    bool defines = false;
    for_each_subgraph(node, [&](const onnx::GraphProto& inner) {
      for (const auto& input : inner.input()) {
        defines = defines || input.name() == name;
      }
      for (const auto& tensor : inner.initializer()) {
        defines = defines || tensor.name() == name;
      }
      for (const onnx::NodeProto& made : inner.node()) {
        for (const std::string& output : made.output()) {
          defines = defines || output == name;
        }
      }
    });
    if (defines) {
      return &node;
    }
  }
  return nullptr;
}

tl::unexpected<Error> unknown_value(const ValueGraph& graph, const std::string& name) {
  if (const onnx::NodeProto* owner = node_hiding(graph.graph(), name)) {
    return fail(ErrorCode::kUnsupported,
                "the value " + quote(name) + " is inside a subgraph of " + quote(owner->op_type()) +
                    " " + quote(owner->name()) +
                    ", and a piece cannot begin or end there; choose values outside that node");
  }
  std::vector<std::string_view> known;
  known.reserve(graph.values().size());
  for (const GraphValue& value : graph.values()) {
    known.push_back(value.name);
  }
  return fail(not_found_error("the graph has no value " + quote(name), name, known));
}

Result<std::vector<ValueId>> find_all(const ValueGraph& graph,
                                      const std::vector<std::string>& names) {
  std::vector<ValueId> values;
  NameSet seen;
  for (const std::string& name : names) {
    const auto value = name.empty() ? std::nullopt : graph.find(name);
    if (!value) {
      return unknown_value(graph, name);
    }
    if (!seen.insert(name).second) {
      return fail(ErrorCode::kInvalidArgument, "the value " + quote(name) + " is listed twice");
    }
    values.push_back(*value);
  }
  return values;
}

// Walks from the outputs to the inputs. Nodes are in topological order, so one pass from the last
// node to the first is enough. If no inputs are given, it continues to the inputs of the graph.
class BackwardWalk {
 public:
  BackwardWalk(const ValueGraph& graph, CutSelection& selection)
      : graph_(graph),
        selection_(selection),
        takes_graph_inputs_(selection.inputs.empty()),
        is_input_(graph.values().size()),
        needed_for_(graph.values().size(), kNoValue) {
    selection_.nodes.resize(graph.node_count());
    for (const ValueId input : selection.inputs) {
      is_input_[input] = true;
    }
  }

  Status walk() {
    for (const ValueId output : selection_.outputs) {
      TRY(check_output(output));
      needed_for_[output] = output;
    }
    for (auto node = static_cast<NodeId>(graph_.node_count()); node-- > 0;) {
      TRY(visit(node));
    }
    if (takes_graph_inputs_) {
      take_graph_inputs();
    }
    for (const ValueId input : selection_.inputs) {
      if (needed_for_[input] == kNoValue) {
        return fail(ErrorCode::kInvalidArgument, "no output depends on the input " +
                                                     quote(graph_[input].name) + "; leave it out");
      }
    }
    return {};
  }

 private:
  Status check_output(ValueId output) const {
    const std::string name = quote(graph_[output].name);
    if (is_input_[output]) {
      return fail(ErrorCode::kInvalidArgument, "the value " + name + " is both input and output");
    }
    if (graph_[output].source != ValueSource::kNode) {
      return fail(ErrorCode::kInvalidArgument,
                  "the output " + name + " is not computed by a node; choose another one");
    }
    return {};
  }

  Status visit(NodeId node) {
    ValueId for_output = kNoValue;
    ValueId made_too = kNoValue;
    for (const ValueId output : graph_.outputs(node)) {
      if (output == kNoValue) {
        continue;
      }
      if (is_input_[output]) {
        made_too = output;
      } else if (needed_for_[output] != kNoValue && for_output == kNoValue) {
        for_output = needed_for_[output];
      }
    }
    if (for_output == kNoValue) {
      return {};
    }
    if (made_too != kNoValue) {
      return fail(ErrorCode::kInvalidArgument,
                  "the input " + quote(graph_[made_too].name) + " is computed by " +
                      graph_.node_text(node) +
                      ", whose other outputs are also needed; make these outputs inputs as well");
    }
    selection_.nodes[node] = true;
    for (const ValueId read : graph_.reads(node)) {
      TRY(read == kNoValue ? Status() : need(read, node, for_output));
    }
    return {};
  }

  Status need(ValueId read, NodeId node, ValueId for_output) {
    needed_for_[read] = needed_for_[read] == kNoValue ? for_output : needed_for_[read];
    if (is_input_[read]) {
      return {};
    }
    const std::string name = quote(graph_[read].name);
    if (graph_[read].source == ValueSource::kInput && !takes_graph_inputs_) {
      return fail(ErrorCode::kMismatch,
                  "the output " + quote(graph_[for_output].name) +
                      " also depends on the graph input " + name + " (" + graph_.node_text(node) +
                      " reads it); make that graph input an input of the piece");
    }
    if (graph_[read].source == ValueSource::kUndefined) {
      return fail(undefined_error(graph_, node, read));
    }
    return {};
  }

  // In the order of the graph.
  void take_graph_inputs() {
    for (const onnx::ValueInfoProto& input : graph_.graph().input()) {
      const auto value = graph_.find(input.name());
      if (value && graph_[*value].source == ValueSource::kInput &&
          needed_for_[*value] != kNoValue) {
        selection_.inputs.push_back(*value);
      }
    }
  }

  const ValueGraph& graph_;
  CutSelection& selection_;
  const bool takes_graph_inputs_;
  std::vector<bool> is_input_;
  std::vector<ValueId> needed_for_;  // of each value: an output that needs it
};

}  // namespace

Result<CutSelection> select_between(const ValueGraph& graph, const std::vector<std::string>& inputs,
                                    const std::vector<std::string>& outputs) {
  CutSelection selection;
  TRY_ASSIGN(selection.inputs, find_all(graph, inputs));
  TRY_ASSIGN(selection.outputs, find_all(graph, outputs));
  TRY(BackwardWalk(graph, selection).walk());
  return selection;
}

}  // namespace onnx_external
