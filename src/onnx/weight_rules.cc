
#include "onnx/exporter_marks.h"
#include "onnx/graph_facts.h"
#include "onnx/shape_rules.h"

namespace onnx_external {
namespace {

std::size_t rank_of(const std::optional<SymbolicShape>& shape) {
  return shape ? shape->size() : 0;
}

// Requires: the shape is known, and `from_end` is 1 to its rank.
std::optional<std::int64_t> dim_from_end(const SymbolicShape& shape, std::size_t from_end) {
  return shape[shape.size() - from_end];
}

// Refines the spatial sizes of a kernel if the node states them.
void refine_kernel(ValueId weight, NodeTypes& node) {
  const onnx::AttributeProto* kernel = node.attribute("kernel_shape");
  for (int i = 0; kernel != nullptr && i < kernel->ints_size(); ++i) {
    node.types().refine_dim(weight, static_cast<std::size_t>(i) + 2, kernel->ints(i));
  }
}

// The rank of data and weights of a convolution.
std::size_t conv_rank(const NodeTypes& node) {
  const onnx::AttributeProto* kernel = node.attribute("kernel_shape");
  const std::size_t stated =
      kernel != nullptr ? static_cast<std::size_t>(kernel->ints_size()) + 2 : 0;
  for (const std::size_t rank : {rank_of(node.shape(node.out(0))), rank_of(node.shape(node.in(0))),
                                 rank_of(node.shape(node.in(1))), stated}) {
    if (rank > 2) {
      return rank;
    }
  }
  return 0;
}

// Refines the rank of the second operand if the other ranks leave only one possibility.
void refine_matmul_rank(NodeTypes& node) {
  const auto& data = node.shape(node.in(0));
  const auto& out = node.shape(node.out(0));
  if (data && out && data->size() == 2 && out->size() == 2) {
    node.types().refine_shape(node.in(1), SymbolicShape(2));
  }
}

// Limits a second operand of unknown rank: it has at most the rank of the output, and as many rows
// as the first operand has columns.
void limit_matmul(NodeTypes& node) {
  const auto& data = node.shape(node.in(0));
  const auto& out = node.shape(node.out(0));
  if (node.shape(node.in(1)) || rank_of(data) < 2 || (out && out->size() < data->size())) {
    return;
  }
  SymbolicShape broadcast_limit = out ? *out : SymbolicShape(kMaxInferredRank);
  broadcast_limit[broadcast_limit.size() - 2] = dim_from_end(*data, 1);
  node.types().refine_broadcast_limit(node.in(1), broadcast_limit);
}

}  // namespace

void matmul_shapes(NodeTypes& node) {
  refine_matmul_rank(node);
  limit_matmul(node);
  const ValueId a = node.in(0);
  const ValueId b = node.in(1);
  const std::size_t left = rank_of(node.shape(a));
  const std::size_t right = rank_of(node.shape(b));
  if (left < 2 || right < 2) {
    return;
  }
  ValueTypes& types = node.types();
  types.refine_dim(a, left - 1, dim_from_end(*node.shape(b), 2));
  types.refine_dim(b, right - 2, dim_from_end(*node.shape(a), 1));
  if (right == 2) {  // what stands before the rows is the first operand's
    SymbolicShape shape = *node.shape(a);
    shape.back() = node.shape(b)->back();
    types.refine_shape(node.out(0), shape);
  }
  if (const auto out = node.shape(node.out(0)); rank_of(out) >= 2) {
    types.refine_dim(b, right - 1, dim_from_end(*out, 1));
    types.refine_dim(a, left - 2, dim_from_end(*out, 2));
  }
}

void gemm_shapes(NodeTypes& node) {
  ValueTypes& types = node.types();
  const ValueId a = node.in(0);
  const ValueId b = node.in(1);
  const std::size_t inner_a = node.number("transA", 0) != 0 ? 0 : 1;
  const std::size_t inner_b = node.number("transB", 0) != 0 ? 1 : 0;
  for (const ValueId each : {a, b, node.out(0)}) {
    types.refine_shape(each, SymbolicShape(2));
  }
  const auto dim = [&](ValueId value, std::size_t axis) {
    const auto& shape = node.shape(value);
    return rank_of(shape) == 2 ? (*shape)[axis] : std::nullopt;
  };
  types.refine_dim(a, inner_a, dim(b, inner_b));
  types.refine_dim(b, inner_b, dim(a, inner_a));
  types.refine_dim(a, 1 - inner_a, dim(node.out(0), 0));
  types.refine_dim(b, 1 - inner_b, dim(node.out(0), 1));
  types.refine_dim(node.out(0), 0, dim(a, 1 - inner_a));
  types.refine_dim(node.out(0), 1, dim(b, 1 - inner_b));
  if (const auto& out = node.shape(node.out(0)); rank_of(out) == 2 && node.in(2) != kNoValue) {
    types.refine_broadcast_limit(node.in(2), *out);
    types.require_broadcast(node.in(2), *out);
    if (!node.shape(node.in(2)) && is_linear_of_torch(node.node())) {
      types.refine_shape(node.in(2), {out->back()});
    }
  }
}

// Weights are [channels out, channels in / groups, kernel...], a bias is [channels out].
void conv_shapes(NodeTypes& node) {
  const std::size_t rank = conv_rank(node);
  if (rank == 0) {
    return;
  }
  ValueTypes& types = node.types();
  const ValueId weight = node.in(1);
  for (const ValueId each : {node.in(0), weight, node.out(0)}) {
    types.refine_shape(each, SymbolicShape(rank));
  }
  types.refine_shape(node.in(2), SymbolicShape(1));
  refine_kernel(weight, node);
  const std::int64_t groups = node.number("group", 1);
  const auto& data = node.shape(node.in(0));
  if (rank_of(data) == rank && (*data)[1] && groups > 0 && *(*data)[1] % groups == 0) {
    types.refine_dim(weight, 1, *(*data)[1] / groups);
  }
  if (rank_of(node.shape(weight)) == rank) {
    types.refine_dim(node.out(0), 1, node.shape(weight)->front());
  }
  const std::optional<SymbolicShape> out = node.shape(node.out(0));
  if (rank_of(out) == rank) {
    types.refine_dim(weight, 0, (*out)[1]);
    types.refine_dim(node.in(2), 0, (*out)[1]);
  }
}

// Weights are [channels in, channels out / groups, kernel...], a bias is [channels out].
void conv_transpose_shapes(NodeTypes& node) {
  const std::size_t rank = conv_rank(node);
  if (rank == 0) {
    return;
  }
  ValueTypes& types = node.types();
  for (const ValueId each : {node.in(0), node.in(1), node.out(0)}) {
    types.refine_shape(each, SymbolicShape(rank));
  }
  types.refine_shape(node.in(2), SymbolicShape(1));
  refine_kernel(node.in(1), node);
  const auto& data = node.shape(node.in(0));
  if (rank_of(data) == rank) {
    types.refine_dim(node.in(1), 0, (*data)[1]);
  }
  const std::int64_t groups = node.number("group", 1);
  constexpr std::int64_t kMaxChannels = std::int64_t{1} << 31;
  if (const auto each = node.dim(node.in(1), 1);
      each && *each <= kMaxChannels && groups > 0 && groups <= kMaxChannels) {
    types.refine_dim(node.out(0), 1, *each * groups);
  }
  const std::optional<SymbolicShape> out = node.shape(node.out(0));
  if (rank_of(out) == rank && (*out)[1] && groups > 0 && *(*out)[1] % groups == 0) {
    types.refine_dim(node.in(1), 1, *(*out)[1] / groups);
    types.refine_dim(node.in(2), 0, (*out)[1]);
  }
}

// All but the data have one number a channel.
void channel_shapes(NodeTypes& node) {
  same_shape(node);
  if (node.number("spatial", 1) == 0) {
    return;  // before operator set 9 it meant a number for each position
  }
  const auto& data = node.shape(node.in(0));
  const std::optional<std::int64_t> channels = rank_of(data) > 1 ? (*data)[1] : std::nullopt;
  for (std::size_t i = 1; i < node.inputs().size(); ++i) {
    node.types().refine_shape(node.in(i), {channels});
  }
}

void layer_norm_shapes(NodeTypes& node) {
  same_shape(node);
  const std::optional<SymbolicShape> data = node.shape(node.in(0));
  const auto axis = data ? axis_of(node.number("axis", -1), data->size()) : std::nullopt;
  if (axis) {
    const SymbolicShape normalized(data->begin() + static_cast<std::ptrdiff_t>(*axis), data->end());
    for (const ValueId weight : {node.in(1), node.in(2)}) {
      if (!node.types().checks()) {
        node.types().refine_shape(weight, normalized);
      } else if (normalized.size() == 1 && rank_of(node.shape(weight)) == 1) {
        // ONNX Runtime takes any other shape that has as many elements.
        node.types().require_broadcast(weight, normalized);
      }
    }
  }
}

// W [directions, gates * hidden, input], R [directions, gates * hidden, hidden],
// B [directions, 2 * gates * hidden], P [directions, 3 * hidden].
void recurrent_shapes(NodeTypes& node) {
  const std::string& op = node.node().op_type();
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const onnx::AttributeProto* direction = node.attribute("direction");
  const std::int64_t directions = direction != nullptr && direction->s() == "bidirectional" ? 2 : 1;
  const std::int64_t hidden = node.number("hidden_size", 0);
  constexpr std::int64_t kMaxHidden = std::int64_t{1} << 40;
  if (hidden <= 0 || hidden > kMaxHidden) {
    return;
  }
  ValueTypes& types = node.types();
  types.refine_shape(node.in(0), SymbolicShape(3));
  const auto width = [&](ValueId value) {
    const auto& shape = node.shape(value);
    return rank_of(shape) == 3 ? shape->back() : std::nullopt;
  };
  types.refine_shape(node.in(1), {directions, gates * hidden, width(node.in(0))});
  types.refine_dim(node.in(0), 2, width(node.in(1)));
  types.refine_shape(node.in(2), {directions, gates * hidden, hidden});
  types.refine_shape(node.in(3), {directions, 2 * gates * hidden});
  if (op == "LSTM") {
    types.refine_shape(node.in(7), {directions, 3 * hidden});
  }
  if (node.number("layout", 0) == 0) {
    const auto& data = node.shape(node.in(0));
    const bool known = rank_of(data) == 3;
    const SymbolicShape out = {known ? data->front() : std::nullopt, directions,
                               known ? (*data)[1] : std::nullopt, hidden};
    types.refine_shape(node.out(0), out);
  }
}

}  // namespace onnx_external
