#include "onnx/value_types.h"

#include <algorithm>
#include <utility>

#include "onnx/graph_facts.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kNoNode = 0xFFFFFFFF;

}  // namespace

ValueTypes::ValueTypes(std::span<const NodeValues> nodes, std::span<ValueType> types)
    : nodes_(nodes), types_(types), producers_(types.size(), kNoNode) {
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId output : nodes[i].outputs) {
      if (output != kNoValue) {
        producers_[output] = i;
      }
    }
  }
}

const NodeValues* ValueTypes::producer(ValueId value) const {
  const std::uint32_t node = value == kNoValue ? kNoNode : producers_[value];
  return node == kNoNode ? nullptr : &nodes_[node];
}

bool ValueTypes::may_refine(ValueId value) const {
  return !checks() || producer(value) == checked_;
}

// Rules also speak of values that are further away; these are not the checked node's fault.
void ValueTypes::differ(ValueId value) {
  const auto has = [value](std::span<const ValueId> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  if (checks() && !contradicted_) {
    contradicted_ = has(checked_->inputs) || has(checked_->outputs);
  }
}

void ValueTypes::require_broadcast(ValueId value, const SymbolicShape& limit) {
  if (value == kNoValue || !types_[value].shape) {
    return;
  }
  const SymbolicShape& shape = *types_[value].shape;
  const auto broadcasts = [](const auto& dim, const auto& wanted) {
    return dim == 1 || may_be_equal(dim, wanted);
  };
  if (shape.size() > limit.size() ||
      !std::equal(shape.rbegin(), shape.rend(), limit.rbegin(), broadcasts)) {
    differ(value);
  }
}

void ValueTypes::refine_type(ValueId value, std::int32_t elem_type) {
  if (value == kNoValue || elem_type == 0) {
    return;
  }
  std::int32_t& known = types_[value].elem_type;
  if (known != 0 && known != elem_type) {
    differ(value);
  } else if (known == 0 && may_refine(value)) {
    known = elem_type;
    changed_ = true;
  }
}

void ValueTypes::refine_shape(ValueId value, const SymbolicShape& shape) {
  if (value == kNoValue || shape.size() > kMaxInferredRank) {
    return;
  }
  if (!types_[value].shape) {
    if (may_refine(value)) {
      types_[value].shape = shape;
      changed_ = true;
    }
    return;
  }
  if (types_[value].shape->size() != shape.size()) {
    differ(value);
    return;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    refine_dim(value, i, shape[i]);
  }
}

void ValueTypes::refine_dim(ValueId value, std::size_t axis, std::optional<std::int64_t> size) {
  if (value == kNoValue || !size || *size < 0 || !types_[value].shape) {
    return;
  }
  SymbolicShape& shape = *types_[value].shape;
  if (axis >= shape.size()) {
    return;
  }
  if (!may_be_equal(shape[axis], size)) {
    differ(value);
  } else if (!shape[axis] && may_refine(value)) {
    shape[axis] = size;
    changed_ = true;
  }
}

void ValueTypes::refine_broadcast_limit(ValueId value, const SymbolicShape& limit) {
  if (value == kNoValue || !types_[value].is_open || types_[value].shape ||
      limit.size() > kMaxInferredRank) {
    return;
  }
  std::optional<SymbolicShape>& known = types_[value].broadcast_limit;
  if (known) {
    meet_broadcast_limits(limit, *known);
  } else {
    known = limit;
  }
}

void ValueTypes::refine_constant_value(ValueId value, std::vector<std::int64_t> numbers) {
  if (value != kNoValue && numbers.size() <= kMaxNumbers && !types_[value].numbers) {
    types_[value].numbers = std::move(numbers);
    changed_ = true;
  }
}

const onnx::AttributeProto* NodeTypes::attribute(std::string_view name) const {
  for (const auto& each : node().attribute()) {
    if (each.name() == name) {
      return &each;
    }
  }
  return nullptr;
}

std::int64_t NodeTypes::number(std::string_view name, std::int64_t otherwise) const {
  const onnx::AttributeProto* found = attribute(name);
  return found != nullptr ? found->i() : otherwise;
}

std::optional<std::vector<std::int64_t>> NodeTypes::numbers(std::string_view attribute_name,
                                                            std::size_t input) const {
  if (const onnx::AttributeProto* found = attribute(attribute_name)) {
    const bool is_long = static_cast<std::size_t>(found->ints_size()) > kMaxNumbers;
    return is_long ? std::nullopt
                   : std::optional(
                         std::vector<std::int64_t>(found->ints().begin(), found->ints().end()));
  }
  return numbers(in(input));
}

std::optional<std::int64_t> NodeTypes::dim(ValueId value, std::size_t axis) const {
  const std::optional<SymbolicShape>& known = shape(value);
  return known && axis < known->size() ? (*known)[axis] : std::nullopt;
}

bool may_be_equal(const std::optional<std::int64_t>& one,
                  const std::optional<std::int64_t>& other) {
  return !one || !other || *one == *other || *one == 0 || *other == 0;
}

std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
  const std::int64_t counted = axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
  const bool fits = counted >= 0 && counted < static_cast<std::int64_t>(rank);
  return fits ? std::optional(static_cast<std::size_t>(counted)) : std::nullopt;
}

std::optional<std::vector<std::size_t>> axes_of(const std::vector<std::int64_t>& axes,
                                                std::size_t rank) {
  std::vector<std::size_t> found;
  for (const std::int64_t axis : axes) {
    const auto place = axis_of(axis, rank);
    if (!place) {
      return std::nullopt;
    }
    found.push_back(*place);
  }
  std::sort(found.begin(), found.end());
  const bool twice = std::adjacent_find(found.begin(), found.end()) != found.end();
  return twice ? std::nullopt : std::optional(std::move(found));
}

void meet_broadcast_limits(const SymbolicShape& other, SymbolicShape& limit) {
  const std::size_t rank = std::min(limit.size(), other.size());
  limit.erase(limit.begin(), limit.end() - static_cast<std::ptrdiff_t>(rank));
  for (std::size_t i = 0; i < rank; ++i) {
    const std::optional<std::int64_t>& dim = other[other.size() - rank + i];
    const bool differs = limit[i] && dim && *limit[i] != *dim;
    limit[i] = differs ? std::optional<std::int64_t>(1) : limit[i] ? limit[i] : dim;
  }
}

}  // namespace onnx_external
