#include "onnx/view_chain.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace onnx_external {
namespace {

// The sizes that are not 1, which a reshape must keep to only insert and remove axes.
Shape wide_dims(const Shape& shape) {
  Shape wide;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(wide),
               [](std::int64_t size) { return size != 1; });
  return wide;
}

}  // namespace

ViewChain::ViewChain(Shape shape) {
  begin(shape);
}

void ViewChain::begin(const Shape& shape) {
  axes_.clear();
  for (const std::int64_t size : shape) {
    axes_.push_back({size, 0, size});
  }
  order_.resize(shape.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

std::int64_t ViewChain::size_of(std::size_t place) const {
  return place == kInserted ? 1 : axes_[place].stop - axes_[place].start;
}

Shape ViewChain::shape() const {
  Shape shape;
  for (const std::size_t place : order_) {
    shape.push_back(size_of(place));
  }
  return shape;
}

bool ViewChain::permute(std::span<const std::int64_t> perm) {
  if (perm.empty()) {
    std::reverse(order_.begin(), order_.end());
    return true;
  }
  if (perm.size() != order_.size()) {
    return false;
  }
  std::vector<std::size_t> order;
  std::vector<bool> seen(perm.size());
  for (const std::int64_t axis : perm) {
    const auto i = static_cast<std::size_t>(axis);
    if (axis < 0 || i >= order_.size() || seen[i]) {
      return false;
    }
    seen[i] = true;
    order.push_back(order_[i]);
  }
  order_ = std::move(order);
  return true;
}

bool ViewChain::slice(std::size_t axis, std::int64_t start, std::int64_t stop) {
  if (axis >= order_.size() || start < 0 || start >= stop || stop > size_of(order_[axis])) {
    return false;
  }
  if (order_[axis] != kInserted) {
    Axis& cut = axes_[order_[axis]];
    cut.stop = cut.start + stop;
    cut.start += start;
  }
  return true;
}

bool ViewChain::squeeze(std::size_t axis) {
  if (axis >= order_.size() || size_of(order_[axis]) != 1) {
    return false;
  }
  order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(axis));
  return true;
}

bool ViewChain::unsqueeze(std::size_t axis) {
  if (axis > order_.size() || !has_rank(order_.size() + 1)) {
    return false;
  }
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(axis), kInserted);
  return true;
}

bool ViewChain::reshape(const Shape& shape) {
  if (!has_rank(shape.size())) {
    return false;
  }
  const Shape before = this->shape();
  if (wide_dims(before) != wide_dims(shape)) {
    done_ = recipe();
    done_.push_back(RecipeStep::reshape(shape));
    begin(shape);
    return true;
  }
  std::vector<std::size_t> wide;
  std::copy_if(order_.begin(), order_.end(), std::back_inserter(wide),
               [&](std::size_t place) { return size_of(place) != 1; });
  order_.assign(shape.size(), kInserted);
  for (std::size_t i = 0, next = 0; i < shape.size(); ++i) {
    order_[i] = shape[i] == 1 ? kInserted : wide[next++];
  }
  return true;
}

bool ViewChain::apply(const RecipeStep& step) {
  const std::vector<std::int64_t>& numbers = step.numbers;
  const auto rank = static_cast<std::int64_t>(order_.size());
  const auto from_start = [](std::int64_t i, std::int64_t end) { return i < 0 ? i + end : i; };
  switch (step.kind) {
    case StepKind::kTranspose:
      return rank == 2 && permute({});
    case StepKind::kPermute: {
      std::vector<std::int64_t> perm = numbers;
      for (std::int64_t& axis : perm) {
        axis = from_start(axis, rank);
      }
      return !perm.empty() ? permute(perm) : rank == 0;
    }
    case StepKind::kReshape: {
      const auto shape = apply_recipe({step}, this->shape());
      return shape && reshape(*shape);
    }
    case StepKind::kSlice: {
      const std::int64_t axis = from_start(numbers[0], rank);
      if (axis < 0 || axis >= rank) {
        return false;
      }
      const std::int64_t size = size_of(order_[static_cast<std::size_t>(axis)]);
      return slice(static_cast<std::size_t>(axis), from_start(numbers[1], size),
                   from_start(numbers[2], size));
    }
    case StepKind::kCast:
      break;
  }
  return true;
}

Recipe ViewChain::recipe() const {
  Recipe steps = done_;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    if (axis.stop - axis.start != axis.size) {
      steps.push_back(RecipeStep::slice(static_cast<std::int64_t>(i), axis.start, axis.stop));
    }
  }
  // Axes that are used, in the order of the tensor; the others have one index left.
  std::vector<std::size_t> used = order_;
  std::erase(used, kInserted);
  std::vector<std::size_t> sorted = used;
  std::sort(sorted.begin(), sorted.end());
  if (used == sorted) {
    if (used.size() != axes_.size() || used.size() != order_.size()) {
      steps.push_back(RecipeStep::reshape(shape()));
    }
    return steps;
  }
  if (sorted.size() != axes_.size()) {
    Shape kept;
    for (const std::size_t place : sorted) {
      kept.push_back(size_of(place));
    }
    steps.push_back(RecipeStep::reshape(std::move(kept)));
  }
  std::vector<std::int64_t> perm;
  for (const std::size_t place : used) {
    perm.push_back(std::lower_bound(sorted.begin(), sorted.end(), place) - sorted.begin());
  }
  steps.push_back(perm.size() == 2 ? RecipeStep::transpose()
                                   : RecipeStep::permute(std::move(perm)));
  if (used.size() != order_.size()) {
    steps.push_back(RecipeStep::reshape(shape()));
  }
  return steps;
}

}  // namespace onnx_external
