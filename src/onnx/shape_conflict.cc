#include "onnx/shape_conflict.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/name_map.h"
#include "onnx/inferred_types.h"
#include "onnx/value_types.h"

namespace onnx_external {
namespace {

// The values of the main graph, and the nodes that read and compute them.
class GraphValues {
 public:
  GraphValues(const onnx::GraphProto& graph, std::span<const SuppliedValue> supplied)
      : graph_(graph), ids_(table_for<NameMap<ValueId>>(count_of(graph))) {
    for (const auto& tensor : graph.initializer()) {
      state(tensor.name(), tensor.data_type(), dims_of(tensor.dims()));
      weights_.insert(tensor.name());
    }
    for (const auto& input : graph.input()) {  // whoever runs the model may give another value
      const auto& type = input.type().tensor_type();
      state(input.name(), type.elem_type(), stated_shape(type));
    }
    for (const SuppliedValue& each : supplied) {
      state(each.name, each.elem_type, dims_of(each.dims));
      supplied_.insert(each.name);
      weights_.insert(each.name);
    }
    list_nodes();
  }

  std::optional<ShapeConflict> conflict() {
    const NodeValues* node = find_contradiction(nodes_, types_);
    if (node == nullptr) {
      return std::nullopt;
    }
    const ValueTypes types(nodes_, types_);
    ShapeConflict found{node->node, {}};
    for (const ValueId input : node->inputs) {
      if (input != kNoValue) {
        found.inputs.push_back({names_[input], types_[input].elem_type, types_[input].shape,
                                weight_behind(input, types)});
      }
    }
    return found;
  }

 private:
  static std::size_t count_of(const onnx::GraphProto& graph) {
    return static_cast<std::size_t>(graph.initializer_size()) +
           static_cast<std::size_t>(graph.node_size());
  }

  ValueId id_of(std::string_view name) {
    if (name.empty()) {
      return kNoValue;
    }
    const auto next = static_cast<ValueId>(names_.size());
    const auto [found, is_new] = ids_.emplace(name, next);
    if (is_new) {
      names_.push_back(name);
      types_.emplace_back();
    }
    return found->second;
  }

  template <typename Dims>
  static SymbolicShape dims_of(const Dims& dims) {
    return {dims.begin(), dims.end()};
  }

  // Sets the type and shape of a value. If they are set several times, the last ones are used.
  void state(std::string_view name, std::int32_t elem_type, std::optional<SymbolicShape> shape) {
    if (const ValueId value = id_of(name); value != kNoValue) {
      types_[value].elem_type = elem_type;
      types_[value].shape = std::move(shape);
    }
  }

  // An Identity whose output is supplied is left out: the model loses it.
  void list_nodes() {
    std::vector<const onnx::NodeProto*> nodes;
    for (const auto& node : graph_.node()) {
      if (std::none_of(node.output().begin(), node.output().end(),
                       [&](const std::string& name) { return supplied_.contains(name); })) {
        nodes.push_back(&node);
        add_values(node.input());
        add_values(node.output());
      }
    }
    std::span<const ValueId> rest = values_;
    const auto take = [&rest](int count) {
      const auto taken = rest.first(static_cast<std::size_t>(count));
      rest = rest.subspan(taken.size());
      return taken;
    };
    for (const onnx::NodeProto* node : nodes) {
      const auto inputs = take(node->input_size());
      nodes_.push_back({node, inputs, take(node->output_size())});
    }
  }

  template <typename Names>
  void add_values(const Names& names) {
    for (const std::string& name : names) {
      values_.push_back(id_of(name));
    }
  }

  [[nodiscard]] bool is_weight(ValueId value) const {
    return onnx_is_floating(types_[value].elem_type) && weights_.contains(names_[value]);
  }

  // The value, or the nearest weight that the nodes before it read. A graph may have a cycle, so
  // the walk ends after as many steps as there are nodes.
  std::string_view weight_behind(ValueId value, const ValueTypes& types) const {
    for (std::size_t step = 0; step <= nodes_.size(); ++step) {
      if (value == kNoValue || is_weight(value)) {
        return value == kNoValue ? std::string_view() : names_[value];
      }
      const NodeValues* node = types.producer(value);
      value = kNoValue;
      for (const ValueId input : node != nullptr ? node->inputs : std::span<const ValueId>()) {
        const bool is_known = input != kNoValue && types_[input].shape;
        if (is_known && (value == kNoValue || (is_weight(input) && !is_weight(value)))) {
          value = input;
        }
      }
    }
    return {};
  }

  const onnx::GraphProto& graph_;
  NameMap<ValueId> ids_;
  NameSet supplied_;
  NameSet weights_;                      // these, and initializers
  std::vector<std::string_view> names_;  // of each value
  std::vector<ValueType> types_;         // of each value
  std::vector<ValueId> values_;          // inputs and outputs of all nodes, in order
  std::vector<NodeValues> nodes_;
};

}  // namespace

std::optional<ShapeConflict> find_shape_conflict(const onnx::GraphProto& graph,
                                                 std::span<const SuppliedValue> supplied) {
  return GraphValues(graph, supplied).conflict();
}

}  // namespace onnx_external
