#include "onnx/inferred_types.h"

#include <algorithm>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx/operator_rules.h"

namespace onnx_external {
namespace {

constexpr int kMaxRank = 64;
// The maximum number of passes over all nodes, forwards and backwards. Two or three passes are
// enough for weights.
constexpr int kMaxRounds = 4;

bool is_among(std::size_t i, std::uint32_t mask) {
  constexpr std::size_t kLastBit = 31;
  return ((mask >> std::min(i, kLastBit)) & 1U) != 0;
}

// All of them have the type that one of them has.
void share_type(const OperatorRule& rule, const NodeValues& node, ValueTypes& types) {
  if (rule.output_type != 0 && !node.outputs.empty()) {
    types.refine_type(node.outputs.front(), rule.output_type);
  }
  std::int32_t type = 0;
  // Scales may have another type than the data.
  const bool has_scales = types.checks() && rule.op.ends_with("Normalization");
  const std::uint32_t same_inputs = has_scales ? 1 : rule.same_inputs;
  const auto look = [&](std::span<const ValueId> values, std::uint32_t mask) {
    for (std::size_t i = 0; i < values.size() && type == 0; ++i) {
      type = is_among(i, mask) ? types[values[i]].elem_type : 0;
    }
  };
  const auto spread = [&](std::span<const ValueId> values, std::uint32_t mask) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (is_among(i, mask)) {
        types.refine_type(values[i], type);
      }
    }
  };
  look(node.inputs, same_inputs);
  look(node.outputs, rule.same_outputs);
  spread(node.inputs, same_inputs);
  spread(node.outputs, rule.same_outputs);
}

// Applies the rule to the node; there is no rule for an unknown operator.
void apply(const OperatorRule* rule, const NodeValues& node, ValueTypes& types) {
  if (rule == nullptr) {
    return;
  }
  share_type(*rule, node, types);
  if (rule->shapes != nullptr) {
    NodeTypes view(node, types);
    rule->shapes(view);
  }
}

}  // namespace

void infer_types(std::span<const NodeValues> nodes, std::span<ValueType> all) {
  std::vector<const OperatorRule*> rules;
  rules.reserve(nodes.size());
  for (const NodeValues& node : nodes) {
    rules.push_back(rule_of(*node.node));
  }
  ValueTypes types(nodes, all);
  for (int round = 0; round < kMaxRounds && (round == 0 || types.changed()); ++round) {
    types.forget_changes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      apply(rules[i], nodes[i], types);
    }
    for (std::size_t i = nodes.size(); i > 0; --i) {
      apply(rules[i - 1], nodes[i - 1], types);
    }
  }
}

const NodeValues* find_contradiction(std::span<const NodeValues> nodes, std::span<ValueType> all) {
  ValueTypes types(nodes, all);
  for (const NodeValues& node : nodes) {
    types.check(node);
    apply(rule_of(*node.node), node, types);
    if (types.contradicted()) {
      return &node;
    }
  }
  return nullptr;
}

std::optional<SymbolicShape> stated_shape(const onnx::TypeProto::Tensor& type) {
  if (!type.has_shape() || type.shape().dim_size() > kMaxRank) {
    return std::nullopt;
  }
  SymbolicShape shape;
  for (const auto& dim : type.shape().dim()) {
    const bool known = dim.has_dim_value() && dim.dim_value() >= 0;
    shape.push_back(known ? std::optional<std::int64_t>(dim.dim_value()) : std::nullopt);
  }
  return shape;
}

}  // namespace onnx_external
