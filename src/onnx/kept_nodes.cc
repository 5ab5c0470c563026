#include "onnx/kept_nodes.h"

#include <string_view>
#include <utility>

namespace onnx_external {
namespace {

onnx::NodeProto node_of(const char* op, const std::vector<std::string>& inputs) {
  onnx::NodeProto node;
  node.set_op_type(op);
  for (const std::string& input : inputs) {
    node.add_input(input);
  }
  return node;
}

void set_integer(const char* name, std::int64_t value, onnx::NodeProto& node) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

template <typename Value>
onnx::NodeProto constant_node(std::int32_t data_type, const std::vector<Value>& values) {
  onnx::NodeProto node = node_of("Constant", {});
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  attribute.mutable_t()->set_data_type(data_type);
  attribute.mutable_t()->add_dims(static_cast<std::int64_t>(values.size()));
  attribute.mutable_t()->set_raw_data(values.data(), values.size() * sizeof(Value));
  return node;
}

// Factors are exact only in float32, so float16 products get them by a Cast.
onnx::NodeProto cast_node(std::string input, std::int32_t data_type) {
  onnx::NodeProto node = node_of("Cast", {std::move(input)});
  set_integer("to", data_type, node);
  return node;
}

}  // namespace

KeptNodes::KeptNodes(const MatrixPlan& plan, const std::vector<GraphNode>& graphs,
                     PutBefore put_before)
    : put_before_(std::move(put_before)) {
  for (const GraphNode& graph : graphs) {
    for (const auto& node : graph.graph->node()) {
      places_.emplace(&node, places_.size());
    }
  }
  for (const ChosenMatrix& chosen : plan.matrices) {
    for (const MatrixUse& use : plan.matrix_of(chosen).uses) {
      if (use.role != MatrixRole::kEmbedding) {
        note_first({use.graph, use.node->input(0)}, use.node);
      }
    }
  }
}

void KeptNodes::note_first(std::tuple<std::uint32_t, std::string> input,
                           const onnx::NodeProto* node) {
  const onnx::NodeProto*& first = first_[std::move(input)];
  if (first == nullptr || places_[node] < places_[first]) {
    first = node;
  }
}

const onnx::NodeProto& KeptNodes::first_reader(const MatrixUse& use) const {
  return *first_.at({use.graph, use.node->input(0)});
}

std::string KeptNodes::constant(const std::vector<std::int64_t>& values,
                                const onnx::NodeProto& before) {
  return put_before_(constant_node(onnx::TensorProto::INT64, values), before);
}

std::string KeptNodes::input_of(const ChosenMatrix& chosen, const MatrixUse& use) {
  const std::string& given = use.node->input(0);
  if (!chosen.inputs || chosen.inputs->empty()) {
    return given;
  }
  std::string& made = inputs_[{use.graph, given, *chosen.inputs}];
  if (!made.empty()) {
    return made;
  }
  const onnx::NodeProto& before = first_reader(use);
  made = given;
  if (!chosen.inputs->factors.empty()) {
    std::string factors =
        put_before_(constant_node(onnx::TensorProto::FLOAT, chosen.inputs->factors), before);
    const std::int32_t type = onnx_data_type(chosen.scheme.scales);
    if (type != onnx::TensorProto::FLOAT) {
      factors = put_before_(cast_node(std::move(factors), type), before);
    }
    made = put_before_(node_of("Mul", {made, factors}), before);
  }
  if (!chosen.inputs->order.empty()) {
    const std::string order =
        put_before_(constant_node(onnx::TensorProto::INT32, chosen.inputs->order), before);
    onnx::NodeProto gather = node_of("Gather", {made, order});
    set_integer("axis", -1, gather);
    made = put_before_(std::move(gather), before);
  }
  return made;
}

std::string KeptNodes::terms_of(const ChosenMatrix& chosen, const MatrixUse& use) {
  const std::string input = input_of(chosen, use);
  std::string& sums = sums_[{use.graph, input, chosen.scheme.block}];
  if (sums.empty()) {
    const onnx::NodeProto& before = first_reader(use);
    onnx::NodeProto outer = node_of("Shape", {input});
    set_integer("end", -1, outer);
    const std::string outer_sizes = put_before_(std::move(outer), before);
    const std::string block = constant({-1, std::int64_t{chosen.scheme.block}}, before);
    onnx::NodeProto join = node_of("Concat", {outer_sizes, block});
    set_integer("axis", 0, join);
    const std::string sizes = put_before_(std::move(join), before);
    const std::string blocks = put_before_(node_of("Reshape", {input, sizes}), before);
    onnx::NodeProto sum = node_of("ReduceSum", {blocks, constant({-1}, before)});
    set_integer("keepdims", 0, sum);
    sums = put_before_(std::move(sum), before);
  }
  const std::string terms = put_before_(
      node_of("Transpose", {std::string(chosen.name_of(MatrixTensor::Part::kTerms))}), *use.node);
  return put_before_(node_of("MatMul", {sums, terms}), *use.node);
}

onnx::NodeProto KeptNodes::add_to_rows(const ChosenMatrix& chosen, const MatrixUse& use,
                                       const std::string& rows) {
  const onnx::NodeProto& before = *use.node;
  const std::string& ids = use.node->input(1);
  const std::string terms = put_before_(
      node_of("Gather", {std::string(chosen.name_of(MatrixTensor::Part::kTerms)), ids}), before);
  const std::string terms_of_blocks =
      put_before_(node_of("Unsqueeze", {terms, constant({-1}, before)}), before);
  const std::string outer_sizes = put_before_(node_of("Shape", {ids}), before);
  const auto reshaped = [&](const std::string& value, const std::vector<std::int64_t>& inner) {
    onnx::NodeProto join = node_of("Concat", {outer_sizes, constant(inner, before)});
    set_integer("axis", 0, join);
    return node_of("Reshape", {value, put_before_(std::move(join), before)});
  };
  const std::int64_t block = chosen.scheme.block;
  const std::string blocks = put_before_(reshaped(rows, {-1, block}), before);
  const std::string sum = put_before_(node_of("Add", {blocks, terms_of_blocks}), before);
  return reshaped(sum, {-1});
}

}  // namespace onnx_external
