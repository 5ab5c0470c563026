#include "onnx/matrix_roles.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace onnx_external {
namespace {

constexpr std::array<std::string_view, 16> kUnary{
    "Identity", "Cast", "Tanh", "Sigmoid",     "Softmax",   "LogSoftmax", "Softplus", "Clip",
    "Relu",     "Sqrt", "Exp",  "HardSigmoid", "LeakyRelu", "Neg",        "Elu",      "Erf"};
constexpr std::array<std::string_view, 6> kBinary{"Add", "Sub", "Mul", "Div", "Max", "Min"};
constexpr std::array<std::string_view, 4> kReshapes{"Reshape", "Squeeze", "Unsqueeze", "Flatten"};

template <std::size_t count>
bool is_in(const std::array<std::string_view, count>& ops, std::string_view op) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

class Destinies {
 public:
  Destinies(const WeightGraph& graph, const std::vector<bool>& known)
      : graph_(graph), known_(known), found_(graph.values().size()) {
    for (std::uint32_t g = 0; g < graph_.graphs().size(); ++g) {
      numbers_.emplace(graph_.graphs()[g].graph, g);
    }
  }

  std::vector<Destiny> list() && {
    end_graph(0, {});
    return std::move(found_);
  }

 private:
  // Goes through the nodes from the last to the first, so the ends of a node are known before those
  // of its inputs. Recursion is safe here: its depth is bounded by kMaxGraphDepth.
  void walk(std::uint32_t g) {
    const auto nodes = graph_.nodes_of(g);
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      for (const auto& attribute : node->node->attribute()) {
        if (attribute.has_g()) {
          enter(*node, attribute.g());
        }
        for (const auto& each : attribute.graphs()) {
          enter(*node, each);
        }
      }
      if (is_default_domain(*node->node)) {
        pass(*node);
      }
    }
  }

  // The branches of an If have its outputs. A value that a loop passes on reaches nothing here.
  void enter(const GraphNodeValues& owner, const onnx::GraphProto& body) {
    const bool is_if = owner.node->op_type() == "If";
    end_graph(numbers_.at(&body), is_if ? owner.outputs : std::span<const ValueId>());
  }

  void end_graph(std::uint32_t g, std::span<const ValueId> outer) {
    const onnx::GraphProto& graph = *graph_.graphs()[g].graph;
    for (int i = 0; i < graph.output_size(); ++i) {
      const ValueId value = graph_.named(g, graph.output(i).name());
      const auto place = static_cast<std::size_t>(i);
      if (value != kNoValue) {
        found_[value].leaves = found_[value].leaves || g == 0;
        merge(place < outer.size() ? outer[place] : kNoValue, true, value);
      }
    }
    walk(g);
  }

  // `value` becomes `next`.
  void merge(ValueId next, bool may_leave, ValueId value) {
    if (next != kNoValue && value != kNoValue) {
      found_[value].leaves = found_[value].leaves || (may_leave && found_[next].leaves);
      found_[value].chooses = found_[value].chooses || found_[next].chooses;
    }
  }

  void pass(const GraphNodeValues& node) {
    const std::string& op = node.node->op_type();
    if (node.inputs.empty() || node.outputs.empty()) {
      return;
    }
    const ValueId first = node.inputs.front();
    const ValueId out = node.outputs.front();
    if (op == "TopK" || op == "ArgMax") {
      if (first != kNoValue) {
        found_[first].chooses = true;
      }
    } else if (is_in(kUnary, op)) {
      merge(out, true, first);
    } else if (is_in(kReshapes, op)) {
      merge(out, false, first);
    } else if (is_in(kBinary, op) && node.inputs.size() == 2) {
      const ValueId second = node.inputs[1];
      merge(is_known(second) ? out : kNoValue, true, first);
      merge(is_known(first) ? out : kNoValue, true, second);
    }
  }

  [[nodiscard]] bool is_known(ValueId value) const { return value != kNoValue && known_[value]; }

  const WeightGraph& graph_;
  const std::vector<bool>& known_;
  std::vector<Destiny> found_;
  std::unordered_map<const onnx::GraphProto*, std::uint32_t> numbers_;
};

}  // namespace

std::vector<Destiny> list_destinies(const WeightGraph& graph, const std::vector<bool>& known) {
  return Destinies(graph, known).list();
}

}  // namespace onnx_external
