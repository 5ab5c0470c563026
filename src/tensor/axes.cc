#include "tensor/axes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> unfit(std::string message) {
  return fail(ErrorCode::kMismatch, std::move(message));
}

// Moves the innermost `size` indices of `dims` to the front of `axis`. False if they end in the
// middle of a dimension that they do not divide.
bool take_inner(std::vector<StridedDim>& dims, std::uint64_t size, std::vector<StridedDim>& axis) {
  while (size > 1) {
    StridedDim& last = dims.back();
    if (size % last.size == 0) {
      size /= last.size;
      axis.insert(axis.begin(), last);
      dims.pop_back();
    } else if (last.size % size == 0) {
      axis.insert(axis.begin(), {size, last.stride});
      last = {last.size / size, last.stride * size};
      size = 1;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

Axes::Axes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    axes_.push_back(
        {{static_cast<std::uint64_t>(shape[i]), static_cast<std::uint64_t>(strides[i])}});
  }
}

std::uint64_t Axes::size_of(const Axis& axis) {
  std::uint64_t size = 1;
  for (const StridedDim& dim : axis) {
    size *= dim.size;
  }
  return size;
}

Shape Axes::shape() const {
  Shape shape;
  for (const Axis& axis : axes_) {
    shape.push_back(static_cast<std::int64_t>(size_of(axis)));
  }
  return shape;
}

std::vector<StridedDim> Axes::dims() const {
  std::vector<StridedDim> dims;
  for (const Axis& axis : axes_) {
    dims.insert(dims.end(), axis.begin(), axis.end());
  }
  return dims;
}

Result<std::size_t> Axes::place_of(std::int64_t dim) const {
  const auto rank = static_cast<std::int64_t>(axes_.size());
  if (dim < -rank || dim >= rank) {
    return unfit("there is no dimension " + std::to_string(dim) + " in " + shape_text(shape()));
  }
  return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
}

Status Axes::permute(std::span<const std::int64_t> dims) {
  std::vector<Axis> permuted;
  std::vector<bool> taken(axes_.size());
  for (const std::int64_t dim : dims) {
    TRY_ASSIGN(const auto place, place_of(dim));
    if (taken[place]) {
      return unfit("dimension " + std::to_string(dim) + " is listed twice");
    }
    taken[place] = true;
    permuted.push_back(axes_[place]);
  }
  if (permuted.size() != axes_.size()) {
    return unfit("the tensor has " + std::to_string(axes_.size()) + " dimensions");
  }
  axes_ = std::move(permuted);
  return {};
}

// The same shape without the -1.
Result<Shape> Axes::resolved(std::span<const std::int64_t> shape) const {
  const Shape old = this->shape();
  Shape wanted(shape.begin(), shape.end());
  const auto open = std::find(wanted.begin(), wanted.end(), -1);
  if (open != wanted.end()) {
    *open = 1;
  }
  TRY_ASSIGN(const auto have, element_count(old));
  const auto given = element_count(wanted);
  const bool divides = given && *given != 0 && have % *given == 0;
  if (open != wanted.end() && divides) {
    *open = static_cast<std::int64_t>(have / *given);
  }
  if (open != wanted.end() ? !divides : given != have) {
    return unfit("a tensor of " + shape_text(old) + " has " + std::to_string(have) + " elements");
  }
  return wanted;
}

// All dimensions, without those of size 1, and joined where one stride steps through both.
std::vector<StridedDim> Axes::merged() const {
  TensorView view;
  for (const StridedDim& dim : dims()) {
    view.shape.push_back(static_cast<std::int64_t>(dim.size));
    view.strides.push_back(static_cast<std::int64_t>(dim.stride));
  }
  return merged_dims(view);
}

Status Axes::reshape(std::span<const std::int64_t> shape) {
  TRY_ASSIGN(const auto wanted, resolved(shape));
  std::vector<Axis> axes(wanted.size());
  const bool is_empty = std::find(wanted.begin(), wanted.end(), 0) != wanted.end();
  std::vector<StridedDim> dims = is_empty ? std::vector<StridedDim>() : merged();
  for (std::size_t i = wanted.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(wanted[i]);
    if (!is_empty && !take_inner(dims, size, axes[i])) {
      return unfit(
          "its elements are not in the order that this step needs, for example because of a "
          "transpose; reshape first, or define a derived tensor");
    }
    if (axes[i].empty()) {
      axes[i] = {{size, 1}};
    }
  }
  axes_ = std::move(axes);
  return {};
}

Status Axes::slice(std::int64_t dim, std::int64_t start, std::int64_t stop) {
  TRY_ASSIGN(const auto place, place_of(dim));
  Axis& axis = axes_[place];
  const auto size = static_cast<std::int64_t>(size_of(axis));
  const std::int64_t first = start < 0 ? start + size : start;
  const std::int64_t end = stop < 0 ? stop + size : stop;
  if (first < 0 || end > size || first >= end) {
    return unfit("the dimension has " + std::to_string(size) +
                 " indices, and this range is empty or exceeds them");
  }
  auto from = static_cast<std::uint64_t>(first);
  const std::uint64_t count = static_cast<std::uint64_t>(end) - from;
  std::uint64_t inner =
      static_cast<std::uint64_t>(size);  // indices in the joined dimensions from d on
  for (std::size_t d = 0; d < axis.size(); ++d) {
    inner /= axis[d].size;
    if (from % inner == 0 &&
        count % inner == 0) {  // a range of this one, and all of the inner ones
      offset_ += from / inner * axis[d].stride;
      axis[d].size = count / inner;
      return {};
    }
    if (from / inner != (from + count - 1) / inner) {
      break;
    }
    offset_ += from / inner * axis[d].stride;  // a part of one index
    axis[d].size = 1;
    from %= inner;
  }
  return unfit(
      "the range cuts through dimensions that a reshape joined; slice before the reshape, or "
      "define a derived tensor");
}

}  // namespace onnx_external
