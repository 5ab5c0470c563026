#include "onnx/matrix_views.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "onnx/value_types.h"

namespace onnx_external {
namespace {

using Integers = std::vector<std::int64_t>;
using Outputs = std::vector<std::pair<ValueId, WeightView>>;

// A node that reads a view, and what it does with it.
class ViewNode {
 public:
  ViewNode(const WeightGraph& graph, const GraphNodeValues& node, const WeightView& view)
      : graph_(graph), node_(node), view_(view), shape_(view.chain.shape()) {}

  [[nodiscard]] std::optional<Outputs> identity() const { return one(view_); }

  [[nodiscard]] std::optional<Outputs> cast() const {
    const auto* to = attribute("to");
    const auto is_float = [](std::int64_t type) {
      return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::FLOAT16 ||
             type == onnx::TensorProto::BFLOAT16;
    };
    if (to == nullptr || !is_float(to->i()) || !is_float(view_.data_type)) {
      return std::nullopt;
    }
    WeightView view = view_;
    view.data_type = static_cast<std::int32_t>(to->i());
    return one(std::move(view));
  }

  [[nodiscard]] std::optional<Outputs> transpose() const {
    const auto* perm = attribute("perm");
    WeightView view = view_;
    const Integers order =
        perm == nullptr ? Integers() : Integers(perm->ints().begin(), perm->ints().end());
    return view.chain.permute(order) ? one(std::move(view)) : std::nullopt;
  }

  [[nodiscard]] std::optional<Outputs> squeeze() const {
    const bool has_axes = attribute("axes") != nullptr || input(1) != kNoValue;
    const auto axes = has_axes ? axes_in("axes", 1, shape_.size()) : narrow_axes();
    WeightView view = view_;
    for (std::size_t i = axes ? axes->size() : 0; i > 0; --i) {  // from the last, so none moves
      if (!view.chain.squeeze((*axes)[i - 1])) {
        return std::nullopt;
      }
    }
    return axes ? one(std::move(view)) : std::nullopt;
  }

  [[nodiscard]] std::optional<Outputs> unsqueeze() const {
    const auto numbers = numbers_in("axes", 1);
    const auto axes = numbers ? axes_in("axes", 1, shape_.size() + numbers->size()) : std::nullopt;
    WeightView view = view_;
    for (std::size_t i = 0; axes && i < axes->size(); ++i) {
      if (!view.chain.unsqueeze((*axes)[i])) {
        return std::nullopt;
      }
    }
    return axes ? one(std::move(view)) : std::nullopt;
  }

  [[nodiscard]] std::optional<Outputs> reshape() const {
    auto wanted = numbers_in("shape", 1);
    const auto* allow_zero = attribute("allowzero");
    if (!wanted || (allow_zero != nullptr && allow_zero->i() != 0)) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < wanted->size(); ++i) {
      if ((*wanted)[i] == 0) {  // the same size as before
        if (i >= shape_.size()) {
          return std::nullopt;
        }
        (*wanted)[i] = shape_[i];
      }
    }
    WeightView view = view_;
    const RecipeStep step = RecipeStep::reshape(*std::move(wanted));
    return view.chain.apply(step) ? one(std::move(view)) : std::nullopt;
  }

  [[nodiscard]] std::optional<Outputs> split() const {
    const auto axis = axis_in("axis", 0);
    const auto sizes = axis ? split_sizes(shape_[*axis]) : std::nullopt;
    if (!sizes || sizes->size() != node_.outputs.size()) {
      return std::nullopt;
    }
    Outputs outputs;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < sizes->size(); ++i) {
      if ((*sizes)[i] <= 0 || (*sizes)[i] > shape_[*axis] - start) {
        return std::nullopt;
      }
      if (node_.outputs[i] != kNoValue) {
        WeightView view = view_;
        if (!view.chain.slice(*axis, start, start + (*sizes)[i])) {
          return std::nullopt;
        }
        outputs.emplace_back(node_.outputs[i], std::move(view));
      }
      start += (*sizes)[i];
    }
    return start == shape_[*axis] ? std::optional(std::move(outputs)) : std::nullopt;
  }

  [[nodiscard]] std::optional<Outputs> slice() const {
    const auto starts = numbers_in("starts", 1);
    const auto ends = numbers_in("ends", 2);
    const auto steps = input(4) == kNoValue ? Integers() : graph_.integers(input(4));
    if (!starts || !ends || !steps || starts->size() != ends->size() ||
        std::any_of(steps->begin(), steps->end(), [](std::int64_t step) { return step != 1; })) {
      return std::nullopt;
    }
    std::vector<std::size_t> axes(starts->size());
    for (std::size_t i = 0; i < axes.size(); ++i) {
      axes[i] = i;
    }
    if (attribute("axes") != nullptr || input(3) != kNoValue) {
      const auto named = numbers_in("axes", 3);
      const auto found = named ? axes_of(*named, shape_.size()) : std::nullopt;
      if (!found) {
        return std::nullopt;
      }
      axes = *found;
    }
    WeightView view = view_;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes.size() != starts->size() || axes[i] >= shape_.size()) {
        return std::nullopt;
      }
      const std::int64_t size = shape_[axes[i]];
      const auto place = [&](std::int64_t at) {
        return std::clamp(at < 0 ? at + size : at, std::int64_t{0}, size);
      };
      if (!view.chain.slice(axes[i], place((*starts)[i]), place((*ends)[i]))) {
        return std::nullopt;
      }
    }
    return one(std::move(view));
  }

  // One index of an axis, which a scalar removes.
  [[nodiscard]] std::optional<Outputs> select() const {
    const auto axis = axis_in("axis", 0);
    const auto index = input(1) == kNoValue ? std::nullopt : graph_.integers(input(1));
    if (!axis || !index || index->size() != 1) {
      return std::nullopt;
    }
    const std::int64_t at = index->front() < 0 ? index->front() + shape_[*axis] : index->front();
    WeightView view = view_;
    if (at < 0 || at >= shape_[*axis] || !view.chain.slice(*axis, at, at + 1) ||
        (graph_.is_scalar(input(1)) && !view.chain.squeeze(*axis))) {
      return std::nullopt;
    }
    return one(std::move(view));
  }

 private:
  [[nodiscard]] std::optional<Outputs> one(WeightView view) const {
    Outputs outputs;
    if (node_.outputs.size() != 1 || node_.outputs.front() == kNoValue) {
      return std::nullopt;
    }
    outputs.emplace_back(node_.outputs.front(), std::move(view));
    return outputs;
  }

  [[nodiscard]] ValueId input(std::size_t i) const {
    return i < node_.inputs.size() ? node_.inputs[i] : kNoValue;
  }

  [[nodiscard]] const onnx::AttributeProto* attribute(std::string_view name) const {
    for (const auto& each : node_.node->attribute()) {
      if (each.name() == name) {
        return &each;
      }
    }
    return nullptr;
  }

  // Integers of an attribute, or of an input in later versions of the operator.
  [[nodiscard]] std::optional<Integers> numbers_in(std::string_view name, std::size_t i) const {
    if (const auto* found = attribute(name)) {
      return Integers(found->ints().begin(), found->ints().end());
    }
    return input(i) == kNoValue ? std::nullopt : graph_.integers(input(i));
  }

  // Sorted.
  [[nodiscard]] std::optional<std::vector<std::size_t>> axes_in(std::string_view name,
                                                                std::size_t i,
                                                                std::size_t rank) const {
    const auto numbers = numbers_in(name, i);
    auto axes = numbers && rank <= kMaxRecipeRank ? axes_of(*numbers, rank) : std::nullopt;
    if (axes) {
      std::sort(axes->begin(), axes->end());
    }
    return axes;
  }

  [[nodiscard]] std::optional<std::vector<std::size_t>> narrow_axes() const {
    std::vector<std::size_t> axes;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      if (shape_[i] == 1) {
        axes.push_back(i);
      }
    }
    return axes;
  }

  [[nodiscard]] std::optional<std::size_t> axis_in(std::string_view name,
                                                   std::int64_t otherwise) const {
    const auto* found = attribute(name);
    return axis_of(found == nullptr ? otherwise : found->i(), shape_.size());
  }

  // Without a list of sizes the pieces are equal, but for the last one.
  [[nodiscard]] std::optional<Integers> split_sizes(std::int64_t whole) const {
    if (attribute("split") != nullptr || input(1) != kNoValue) {
      return numbers_in("split", 1);
    }
    const auto count = static_cast<std::int64_t>(node_.outputs.size());
    if (count == 0) {
      return std::nullopt;
    }
    const std::int64_t each = whole / count + (whole % count != 0 ? 1 : 0);
    Integers sizes;
    for (std::int64_t left = whole; sizes.size() < node_.outputs.size(); left -= each) {
      sizes.push_back(std::min(each, left));
    }
    return sizes;
  }

  const WeightGraph& graph_;
  const GraphNodeValues& node_;
  const WeightView& view_;
  Shape shape_;
};

struct ViewOperator {
  std::string_view op;
  std::optional<Outputs> (ViewNode::*follow)() const;
};
constexpr std::array<ViewOperator, 9> kViewOperators{{{"Identity", &ViewNode::identity},
                                                      {"Cast", &ViewNode::cast},
                                                      {"Transpose", &ViewNode::transpose},
                                                      {"Squeeze", &ViewNode::squeeze},
                                                      {"Unsqueeze", &ViewNode::unsqueeze},
                                                      {"Reshape", &ViewNode::reshape},
                                                      {"Split", &ViewNode::split},
                                                      {"Slice", &ViewNode::slice},
                                                      {"Gather", &ViewNode::select}}};

const ViewOperator* view_operator(const onnx::NodeProto& node) {
  const auto* const found =
      std::find_if(kViewOperators.begin(), kViewOperators.end(),
                   [&](const ViewOperator& known) { return known.op == node.op_type(); });
  return found == kViewOperators.end() || !is_default_domain(node) ? nullptr : found;
}

}  // namespace

bool moves_weights(const onnx::NodeProto& node) {
  return view_operator(node) != nullptr;
}

std::optional<Outputs> follow_view(const WeightGraph& graph, const GraphNodeValues& node,
                                   const WeightView& view) {
  const ViewOperator* const known = view_operator(*node.node);
  return known == nullptr ? std::nullopt : (ViewNode(graph, node, view).*known->follow)();
}

}  // namespace onnx_external
