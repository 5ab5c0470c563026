#include "onnx/shape_rules.h"

#include <algorithm>

#include "onnx/exporter_marks.h"
#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

std::optional<std::int64_t> broadcast_dim(const std::optional<std::int64_t>& one,
                                          const std::optional<std::int64_t>& other) {
  if (one && *one != 1) {
    return one;
  }
  if (other && *other != 1) {
    return other;
  }
  return one && other ? std::optional<std::int64_t>(1) : std::nullopt;
}

bool may_broadcast(const SymbolicShape& one, const SymbolicShape& other) {
  const std::size_t rank = std::min(one.size(), other.size());
  for (std::size_t i = 1; i <= rank; ++i) {
    const auto& a = one[one.size() - i];
    const auto& b = other[other.size() - i];
    if (a != 1 && b != 1 && !may_be_equal(a, b)) {
      return false;
    }
  }
  return true;
}

SymbolicShape broadcast(const SymbolicShape& one, const SymbolicShape& other) {
  SymbolicShape result(std::max(one.size(), other.size()));
  const auto from_end = [](const SymbolicShape& shape, std::size_t i) {
    return i < shape.size() ? shape[shape.size() - 1 - i] : std::optional<std::int64_t>(1);
  };
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[result.size() - 1 - i] = broadcast_dim(from_end(one, i), from_end(other, i));
  }
  return result;
}

SymbolicShape with_ones(const SymbolicShape& shape, const std::vector<std::size_t>& axes) {
  SymbolicShape result;
  std::size_t next = 0;
  for (std::size_t i = 0; i < shape.size() + axes.size(); ++i) {
    const bool added = std::binary_search(axes.begin(), axes.end(), i);
    result.push_back(added ? std::optional<std::int64_t>(1) : shape[next]);
    next += added ? 0 : 1;
  }
  return result;
}

SymbolicShape without(const SymbolicShape& shape, const std::vector<std::size_t>& axes) {
  SymbolicShape result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), i)) {
      result.push_back(shape[i]);
    }
  }
  return result;
}

// `longer` has the dimensions of `shorter`, and a dimension of 1 at each of the axes.
void unsqueezed(ValueId shorter, ValueId longer, NodeTypes& node) {
  const auto axes = node.numbers("axes", 1);
  if (!axes) {
    return;
  }
  const std::optional<SymbolicShape> small = node.shape(shorter);
  const std::optional<SymbolicShape> large = node.shape(longer);
  if (const auto places = small ? axes_of(*axes, small->size() + axes->size()) : std::nullopt) {
    node.types().refine_shape(longer, with_ones(*small, *places));
  }
  if (const auto places = large ? axes_of(*axes, large->size()) : std::nullopt) {
    node.types().refine_shape(shorter, without(*large, *places));
  }
}

}  // namespace

void same_shape(NodeTypes& node) {
  if (const std::optional<SymbolicShape> shape = node.shape(node.in(0))) {
    node.types().refine_shape(node.out(0), *shape);
  }
  if (const std::optional<SymbolicShape> shape = node.shape(node.out(0))) {
    node.types().refine_shape(node.in(0), *shape);
  }
}

void broadcast_shapes(NodeTypes& node) {
  if (node.attribute("broadcast") != nullptr) {
    return;  // it had other rules before operator set 7
  }
  if (const std::optional<SymbolicShape> out = node.shape(node.out(0))) {
    for (const ValueId input : node.inputs()) {
      node.types().refine_broadcast_limit(input, *out);
    }
  }
  SymbolicShape result;
  for (const ValueId input : node.inputs()) {
    const auto& shape = node.shape(input);
    if (!shape) {
      return;
    }
    if (!may_broadcast(result, *shape)) {
      node.types().contradict();
    }
    result = broadcast(result, *shape);
  }
  node.types().refine_shape(node.out(0), result);
}

// The sum has the shape of the product, and in torch's own modules the bias has one dimension.
void add_shapes(NodeTypes& node) {
  arithmetic_shapes(node);
  if (node.types().checks()) {
    return;  // what torch does is no requirement
  }
  const std::optional<SymbolicShape> out = node.shape(node.out(0));
  const NodeValues* product = node.types().producer(node.in(0));
  if (!out || out->empty() || product == nullptr || product->node->op_type() != "MatMul" ||
      (node.shape(node.in(0)) == out && node.shape(node.in(1)))) {
    return;
  }
  if (is_linear_of_torch(node.node())) {
    node.types().refine_shape(node.in(0), *out);
    node.types().refine_shape(node.in(1), {out->back()});
  }
}

void arithmetic_shapes(NodeTypes& node) {
  broadcast_shapes(node);
  calculated_numbers(node);
}

void where_shapes(NodeTypes& node) {
  broadcast_shapes(node);
  node.types().refine_type(node.in(0), onnx::TensorProto::BOOL);
}

void slope_shapes(NodeTypes& node) {
  same_shape(node);
  if (const std::optional<SymbolicShape> data = node.shape(node.in(0))) {
    node.types().refine_broadcast_limit(node.in(1), *data);
  }
}

void expand_shapes(NodeTypes& node) {
  if (const std::optional<SymbolicShape> out = node.shape(node.out(0))) {
    node.types().refine_broadcast_limit(node.in(0), *out);
  }
}

void transpose_shapes(NodeTypes& node) {
  const onnx::AttributeProto* perm = node.attribute("perm");
  const auto& known = node.shape(node.out(0)) ? node.shape(node.out(0)) : node.shape(node.in(0));
  const std::size_t rank = perm != nullptr ? static_cast<std::size_t>(perm->ints_size())
                           : known         ? known->size()
                                           : 0;
  const auto& data = node.shape(node.in(0));
  // ONNX Runtime accepts a wrong rank if another Transpose undoes this one, and removes both.
  if (rank == 0 || rank > kMaxInferredRank || (data && data->size() != rank)) {
    return;
  }
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < rank; ++i) {
    order.push_back(perm != nullptr ? perm->ints(static_cast<int>(i))
                                    : static_cast<std::int64_t>(rank - 1 - i));
  }
  if (!axes_of(order, rank)) {
    return;
  }
  node.types().refine_shape(node.in(0), SymbolicShape(rank));
  node.types().refine_shape(node.out(0), SymbolicShape(rank));
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from = *axis_of(order[i], rank);
    node.types().refine_dim(node.in(0), from, node.dim(node.out(0), i));
    node.types().refine_dim(node.out(0), i, node.dim(node.in(0), from));
  }
}

void unsqueeze_shapes(NodeTypes& node) {
  same_numbers(node);
  unsqueezed(node.in(0), node.out(0), node);
}

void squeeze_shapes(NodeTypes& node) {
  same_numbers(node);
  unsqueezed(node.out(0), node.in(0), node);
}

void reshape_shapes(NodeTypes& node) {
  same_numbers(node);
  const ValueType& data = node.types()[node.in(0)];
  if (data.is_open && !data.shape && !data.broadcast_limit &&
      is_made_for(node.node(), "aten.prelu.default")) {
    node.types().refine_broadcast_limit(node.in(0), SymbolicShape(1));  // torch accepts no other
  }
  const auto wanted = node.numbers("shape", 1);
  if (!wanted) {
    return;
  }
  SymbolicShape shape;
  const bool copies_zeros = node.number("allowzero", 0) == 0;
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    const std::int64_t size = (*wanted)[i];
    const bool is_copied = size == 0 && copies_zeros;
    shape.push_back(is_copied  ? node.dim(node.in(0), i)
                    : size < 0 ? std::nullopt
                               : std::optional(size));
  }
  node.types().refine_shape(node.out(0), shape);
}

// In the output the shape of the indices replaces the axis.
void gather_shapes(NodeTypes& node) {
  const std::optional<SymbolicShape> data = node.shape(node.in(0));
  const std::optional<SymbolicShape> indices = node.shape(node.in(1));
  const std::optional<SymbolicShape> out = node.shape(node.out(0));
  if (!data && out && !out->empty() && is_made_for(node.node(), "aten.embedding.default")) {
    node.types().refine_shape(node.in(0), {std::nullopt, out->back()});  // torch accepts no other
  }
  if (!indices || (!data && !out) || (!data && out->size() < indices->size())) {
    return;
  }
  const std::size_t rank = data ? data->size() : out->size() - indices->size() + 1;
  const auto axis = axis_of(node.number("axis", 0), rank);
  if (!axis || rank + indices->size() > 2 * kMaxInferredRank ||
      (out && out->size() != rank + indices->size() - 1)) {
    return;
  }
  SymbolicShape gathered(rank + indices->size() - 1);
  SymbolicShape source(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t place = i < *axis ? i : i + indices->size() - 1;
    if (i != *axis) {
      gathered[place] = data ? (*data)[i] : std::nullopt;
      source[i] = out ? (*out)[place] : std::nullopt;
    }
  }
  std::copy(indices->begin(), indices->end(),
            gathered.begin() + static_cast<std::ptrdiff_t>(*axis));
  node.types().refine_shape(node.out(0), gathered);
  node.types().refine_shape(node.in(0), source);
}

}  // namespace onnx_external
