#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "onnx/graph_facts.h"
#include "onnx/shape_rules.h"

namespace onnx_external {
namespace {

// In slices larger numbers mean "to the end". Sums and products of smaller ones cannot overflow.
constexpr std::int64_t kMaxOperand = std::numeric_limits<std::int32_t>::max();

std::optional<std::vector<std::int64_t>> integers_of(const onnx::TensorProto& tensor) {
  if (tensor.data_type() != onnx::TensorProto::INT64 || tensor.dims_size() > 1 ||
      tensor.external_data_size() > 0) {
    return std::nullopt;
  }
  const std::int64_t count = tensor.dims_size() == 0 ? 1 : tensor.dims(0);
  if (count < 0 || count > static_cast<std::int64_t>(kMaxNumbers)) {
    return std::nullopt;
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  if (tensor.int64_data_size() == count) {
    std::copy(tensor.int64_data().begin(), tensor.int64_data().end(), numbers.begin());
    return numbers;
  }
  if (tensor.raw_data().size() != numbers.size() * sizeof(std::int64_t)) {
    return std::nullopt;
  }
  std::memcpy(numbers.data(), tensor.raw_data().data(), tensor.raw_data().size());
  return numbers;
}

void refine_constant(ValueId value, const onnx::TensorProto& tensor, NodeTypes& node) {
  node.types().refine_type(value, tensor.data_type());
  if (static_cast<std::size_t>(tensor.dims_size()) <= kMaxInferredRank) {
    node.types().refine_shape(value, SymbolicShape(tensor.dims().begin(), tensor.dims().end()));
  }
  if (auto numbers = integers_of(tensor)) {
    node.types().refine_constant_value(value, *std::move(numbers));
  }
}

// The numbers of a value with more dimensions would be in another order after joining it with
// others.
bool is_list(ValueId value, const NodeTypes& node) {
  const auto& shape = node.shape(value);
  return !shape || shape->size() < 2;
}

std::int64_t calculate(const std::string& op, std::int64_t a, std::int64_t b) {
  return op == "Add" ? a + b : op == "Sub" ? a - b : a * b;
}

}  // namespace

void constant_numbers(NodeTypes& node) {
  const ValueId out = node.out(0);
  for (const auto& attribute : node.node().attribute()) {
    if (attribute.name() == "value" && attribute.has_t()) {
      refine_constant(out, attribute.t(), node);
    } else if (attribute.name() == "value_int") {
      node.types().refine_type(out, onnx::TensorProto::INT64);
      node.types().refine_shape(out, {});
      node.types().refine_constant_value(out, {attribute.i()});
    } else if (attribute.name() == "value_ints") {
      node.types().refine_type(out, onnx::TensorProto::INT64);
      node.types().refine_shape(out, {attribute.ints_size()});
      if (static_cast<std::size_t>(attribute.ints_size()) <= kMaxNumbers) {
        node.types().refine_constant_value(out, {attribute.ints().begin(), attribute.ints().end()});
      }
    } else if (attribute.name() == "value_float" || attribute.name() == "value_floats") {
      node.types().refine_type(out, onnx::TensorProto::FLOAT);
    }
  }
}

void same_numbers(NodeTypes& node) {
  if (const auto& numbers = node.numbers(node.in(0))) {
    node.types().refine_constant_value(node.out(0), *numbers);
  }
}

void calculated_numbers(NodeTypes& node) {
  const auto& one = node.numbers(node.in(0));
  const auto& other = node.numbers(node.in(1));
  if (!one || !other || one->empty() || other->empty() ||
      (one->size() != other->size() && one->size() != 1 && other->size() != 1) ||
      !is_list(node.in(0), node) || !is_list(node.in(1), node)) {
    return;
  }
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < std::max(one->size(), other->size()); ++i) {
    const std::int64_t a = (*one)[one->size() == 1 ? 0 : i];
    const std::int64_t b = (*other)[other->size() == 1 ? 0 : i];
    if (std::max(a, b) > kMaxOperand || std::min(a, b) < -kMaxOperand) {
      return;
    }
    result.push_back(calculate(node.node().op_type(), a, b));
  }
  node.types().refine_constant_value(node.out(0), std::move(result));
}

void concat_numbers(NodeTypes& node) {
  std::vector<std::int64_t> result;
  for (const ValueId input : node.inputs()) {
    const auto& numbers = node.numbers(input);
    if (!numbers || result.size() + numbers->size() > kMaxNumbers || !is_list(input, node)) {
      return;
    }
    result.insert(result.end(), numbers->begin(), numbers->end());
  }
  node.types().refine_constant_value(node.out(0), std::move(result));
}

void shape_numbers(NodeTypes& node) {
  const auto& shape = node.shape(node.in(0));
  if (!shape) {
    return;
  }
  const auto rank = static_cast<std::int64_t>(shape->size());
  const auto place = [&](std::string_view name, std::int64_t otherwise) {
    const std::int64_t at = node.number(name, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = place("start", 0); i < place("end", rank); ++i) {
    const auto& dim = (*shape)[static_cast<std::size_t>(i)];
    if (!dim) {
      return;
    }
    numbers.push_back(*dim);
  }
  node.types().refine_shape(node.out(0), {static_cast<std::int64_t>(numbers.size())});
  node.types().refine_constant_value(node.out(0), std::move(numbers));
}

}  // namespace onnx_external
