#include <algorithm>
#include <numeric>
#include <utility>

#include "onnx/graph_facts.h"
#include "onnx/shape_rules.h"

namespace onnx_external {
namespace {

// A slice to the end has an end like INT64_MAX; no dimension is that large.
constexpr std::int64_t kMaxDim = std::int64_t{1} << 40;

// Two values share all dimensions but one.
void same_but_for(std::size_t axis, ValueId one, ValueId other, NodeTypes& node) {
  for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
    if (std::optional<SymbolicShape> shape = node.shape(from); shape && axis < shape->size()) {
      (*shape)[axis] = std::nullopt;
      node.types().refine_shape(to, *shape);
    }
  }
}

struct Piece {
  ValueId data = kNoValue;
  std::size_t axis = 0;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// A slice along one axis, with steps of 1 and known ends that are counted from the start.
std::optional<Piece> piece_of(ValueId value, NodeTypes& concat) {
  const NodeValues* slice = concat.types().producer(value);
  if (slice == nullptr || slice->node->op_type() != "Slice") {
    return std::nullopt;
  }
  const NodeTypes node(*slice, concat.types());
  const auto starts = node.numbers("starts", 1);
  const auto ends = node.numbers("ends", 2);
  const auto axes = node.numbers("axes", 3);
  const auto& shape = node.shape(node.in(0));
  const bool one = starts && ends && axes && starts->size() == 1 && ends->size() == 1 &&
                   axes->size() == 1 && node.in(4) == kNoValue;
  const auto axis = one && shape ? axis_of(axes->front(), shape->size()) : std::nullopt;
  if (!axis || starts->front() < 0 || ends->front() <= starts->front() || ends->front() > kMaxDim) {
    return std::nullopt;
  }
  return Piece{node.in(0), *axis, starts->front(), ends->front()};
}

// Slices of one value that a Concat joins in another order, as exporters do with the gates of an
// LSTM. If there is no gap between them, they are the whole value; otherwise the model would not
// use a part of the weight.
void refine_whole(std::size_t axis, NodeTypes& node) {
  if (node.inputs().size() < 2 || node.inputs().size() > kMaxNumbers) {
    return;
  }
  std::vector<Piece> pieces;
  for (const ValueId input : node.inputs()) {
    const auto piece = piece_of(input, node);
    if (!piece || piece->axis != axis || (!pieces.empty() && piece->data != pieces.front().data)) {
      return;
    }
    pieces.push_back(*piece);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.start < b.start; });
  std::int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.start != end) {
      return;
    }
    end = piece.end;
  }
  node.types().refine_dim(pieces.front().data, axis, end);
}

}  // namespace

void concat_shapes(NodeTypes& node) {
  concat_numbers(node);
  const ValueId out = node.out(0);
  for (const ValueId input : node.inputs()) {  // one input with a known rank gives it to all
    if (const auto& shape = node.shape(input); shape && !node.shape(out)) {
      node.types().refine_shape(out, SymbolicShape(shape->size()));
    }
  }
  const auto& shape = node.shape(out);
  const auto axis = shape ? axis_of(node.number("axis", 1), shape->size()) : std::nullopt;
  if (!axis || shape->size() > kMaxInferredRank) {
    return;
  }
  std::int64_t total = 0;
  ValueId open = kNoValue;
  std::size_t open_count = 0;
  for (const ValueId input : node.inputs()) {
    same_but_for(*axis, input, out, node);
    const auto size = node.dim(input, *axis);
    const bool fits = size && *size <= kMaxDim && total <= kMaxDim;
    total += fits ? *size : 0;
    open = fits ? open : input;
    open_count += fits ? 0 : 1;
  }
  if (open_count == 0) {
    node.types().refine_dim(out, *axis, total);
  } else if (const auto whole = node.dim(out, *axis); open_count == 1 && whole) {
    node.types().refine_dim(open, *axis, *whole - total);
  }
  refine_whole(*axis, node);
}

void split_shapes(NodeTypes& node) {
  const auto& data = node.shape(node.in(0));
  const auto& first = node.shape(node.out(0));
  const std::size_t rank = data ? data->size() : first ? first->size() : 0;
  const auto axis = axis_of(node.number("axis", 0), rank);
  if (!axis || rank > kMaxInferredRank) {
    return;
  }
  const auto sizes = node.numbers("split", 1);
  bool all_known = true;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    same_but_for(*axis, node.in(0), node.out(i), node);
    if (sizes && i < sizes->size()) {
      node.types().refine_dim(node.out(i), *axis, (*sizes)[i]);
    }
    const auto size = node.dim(node.out(i), *axis);
    all_known = all_known && size && *size <= kMaxDim && total <= kMaxDim;
    total += all_known ? *size : 0;
  }
  if (all_known) {
    node.types().refine_dim(node.in(0), *axis, total);
  }
}

namespace {

// The axes that a Slice cuts, in the order of its list; without a list, the first axes.
std::optional<std::vector<std::int64_t>> sliced_axes(const NodeTypes& node) {
  const auto starts = node.numbers("starts", 1);
  if (node.attribute("axes") != nullptr || node.in(3) != kNoValue || !starts) {
    return node.numbers("axes", 3);
  }
  std::vector<std::int64_t> axes(starts->size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

// The lengths of the pieces whose dimensions are known. Requires: the axes are in range.
void refine_slice_sizes(const std::vector<std::int64_t>& axes, std::size_t rank, NodeTypes& node) {
  const auto starts = node.numbers("starts", 1);
  const auto ends = node.numbers("ends", 2);
  if (!starts || !ends || starts->size() != axes.size() || ends->size() != axes.size() ||
      node.in(4) != kNoValue) {  // steps
    return;
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = *axis_of(axes[i], rank);
    if (const auto size = node.dim(node.in(0), axis)) {
      const auto place = [size = *size](std::int64_t at) {
        return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
      };
      node.types().refine_dim(node.out(0), axis,
                              std::max<std::int64_t>(place((*ends)[i]) - place((*starts)[i]), 0));
    }
  }
}

}  // namespace

void slice_shapes(NodeTypes& node) {
  const std::optional<SymbolicShape> data = node.shape(node.in(0));
  const std::optional<SymbolicShape> out = node.shape(node.out(0));
  const std::size_t rank = data ? data->size() : out ? out->size() : 0;
  const auto axes = sliced_axes(node);
  const auto cut = axes ? axes_of(*axes, rank) : std::nullopt;
  if (!cut || (!data && !out)) {
    return;
  }
  for (const auto& [from, to] : {std::pair(data, node.out(0)), std::pair(out, node.in(0))}) {
    SymbolicShape others = from ? *from : SymbolicShape(rank);
    for (std::size_t i = 0; others.size() == rank && i < cut->size(); ++i) {
      others[(*cut)[i]] = std::nullopt;
    }
    node.types().refine_shape(to, others);
  }
  refine_slice_sizes(*axes, rank, node);
}

}  // namespace onnx_external
