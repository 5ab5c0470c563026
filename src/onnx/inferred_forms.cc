#include "onnx/inferred_forms.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace onnx_external {
namespace {

constexpr int kMaxRank = 64;

// Operators whose output has the element type of all inputs, or of the first one.
constexpr std::array<std::string_view, 24> kAllInputs = {"MatMul",
                                                         "Gemm",
                                                         "Conv",
                                                         "ConvTranspose",
                                                         "Add",
                                                         "Sub",
                                                         "Mul",
                                                         "Div",
                                                         "PRelu",
                                                         "Transpose",
                                                         "Max",
                                                         "Min",
                                                         "Sum",
                                                         "Concat",
                                                         "Clip",
                                                         "Einsum",
                                                         "LayerNormalization",
                                                         "BatchNormalization",
                                                         "InstanceNormalization",
                                                         "GroupNormalization",
                                                         "Exp",
                                                         "Neg",
                                                         "Tanh",
                                                         "Sigmoid"};
constexpr std::array<std::string_view, 8> kFirstInput = {
    "Gather", "Expand", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Pow", "Identity"};
constexpr std::array<std::string_view, 8> kElementwise = {"Add", "Sub", "Mul", "Div",
                                                          "Max", "Min", "Sum", "PRelu"};

template <typename List>
bool is_one_of(const List& list, std::string_view op) {
  return std::find(list.begin(), list.end(), op) != list.end();
}

const onnx::AttributeProto* attribute(const onnx::NodeProto& node, std::string_view name) {
  for (const auto& each : node.attribute()) {
    if (each.name() == name) {
      return &each;
    }
  }
  return nullptr;
}

std::int64_t number(const onnx::NodeProto& node, std::string_view name, std::int64_t otherwise) {
  const onnx::AttributeProto* found = attribute(node, name);
  return found != nullptr ? found->i() : otherwise;
}

// One node and the forms around it.
class Reader {
 public:
  Reader(const onnx::NodeProto& node, int input, const FormLookup& lookup)
      : node_(node), input_(input), lookup_(lookup) {}

  [[nodiscard]] std::int32_t elem_type() const {
    const onnx::TypeProto* type = keeps_type(node_, input_) ? lookup_(node_.output(0)) : nullptr;
    return type != nullptr && type->has_tensor_type() ? type->tensor_type().elem_type() : 0;
  }

  [[nodiscard]] std::optional<SymbolicShape> shape() const {
    const std::string& op = node_.op_type();
    if (op == "Transpose") {
      return before_transpose();
    }
    if (op == "Gather" && input_ == 0) {
      return before_gather();
    }
    if (op == "Concat") {
      return beside_concat();
    }
    if (op == "Gemm" && input_ == 1) {
      return gemm_weight();
    }
    if (op == "Conv" && input_ > 0) {
      return conv_weight();
    }
    if ((op == "BatchNormalization" || op == "InstanceNormalization") && input_ > 0) {
      const auto data = shape_of(node_.input(0));
      return data && data->size() > 1 ? std::optional(SymbolicShape{(*data)[1]}) : std::nullopt;
    }
    if (op == "LayerNormalization" && input_ > 0) {
      return normalized_shape();
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<SymbolicShape> bound() const {
    const std::string& op = node_.op_type();
    const bool broadcasts = is_one_of(kElementwise, op) || (op == "Gemm" && input_ == 2) ||
                            (op == "Expand" && input_ == 0) || op == "Where";
    return broadcasts ? shape_of(node_.output(0)) : std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<SymbolicShape> shape_of(const std::string& name) const {
    const onnx::TypeProto* type = lookup_(name);
    return type != nullptr && type->has_tensor_type() ? stated_shape(type->tensor_type())
                                                      : std::nullopt;
  }

  // An axis counted from the end, as one from the start; nothing when it is out of range.
  static std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
    const std::int64_t counted = axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
    const bool fits = counted >= 0 && counted < static_cast<std::int64_t>(rank);
    return fits ? std::optional(static_cast<std::size_t>(counted)) : std::nullopt;
  }

  [[nodiscard]] std::optional<SymbolicShape> before_transpose() const {
    auto out = shape_of(node_.output(0));
    const onnx::AttributeProto* perm = attribute(node_, "perm");
    if (!out || perm == nullptr) {
      if (out) {
        std::reverse(out->begin(), out->end());
      }
      return out;
    }
    SymbolicShape shape(out->size());
    if (static_cast<std::size_t>(perm->ints_size()) != out->size()) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < out->size(); ++i) {
      const auto from = axis_of(perm->ints(static_cast<int>(i)), out->size());
      if (!from) {
        return std::nullopt;
      }
      shape[*from] = (*out)[i];
    }
    return shape;
  }

  [[nodiscard]] std::optional<SymbolicShape> before_gather() const {
    const auto out = shape_of(node_.output(0));
    const auto indices =
        node_.input_size() > 1 ? shape_of(node_.input(1)) : std::optional<SymbolicShape>();
    if (!out || !indices || out->size() + 1 < indices->size() + 1 ||
        out->size() < indices->size()) {
      return std::nullopt;
    }
    const std::size_t rank = out->size() - indices->size() + 1;
    const auto axis = axis_of(number(node_, "axis", 0), rank);
    if (!axis) {
      return std::nullopt;
    }
    SymbolicShape shape(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      if (i != *axis) {
        shape[i] = (*out)[i < *axis ? i : i + indices->size() - 1];
      }
    }
    return shape;
  }

  [[nodiscard]] std::optional<SymbolicShape> beside_concat() const {
    auto shape = shape_of(node_.output(0));
    const auto axis = shape ? axis_of(number(node_, "axis", 0), shape->size()) : std::nullopt;
    if (!axis) {
      return std::nullopt;
    }
    (*shape)[*axis] = std::nullopt;
    return shape;
  }

  [[nodiscard]] std::optional<SymbolicShape> gemm_weight() const {
    const auto out = shape_of(node_.output(0));
    const auto data = shape_of(node_.input(0));
    if (!out || !data || out->size() != 2 || data->size() != 2) {
      return std::nullopt;
    }
    SymbolicShape shape = {(*data)[number(node_, "transA", 0) != 0 ? 0 : 1], (*out)[1]};
    if (number(node_, "transB", 0) != 0) {
      std::swap(shape[0], shape[1]);
    }
    return shape;
  }

  // [channels out, channels in / groups, kernel...], and a bias of [channels out].
  [[nodiscard]] std::optional<SymbolicShape> conv_weight() const {
    const auto out = shape_of(node_.output(0));
    if (!out || out->size() < 2) {
      return std::nullopt;
    }
    SymbolicShape shape = {(*out)[1]};
    if (input_ == 2) {
      return shape;
    }
    shape.resize(out->size());
    const onnx::AttributeProto* kernel = attribute(node_, "kernel_shape");
    for (int i = 0; kernel != nullptr && i < kernel->ints_size(); ++i) {
      if (static_cast<std::size_t>(i) + 2 < shape.size()) {
        shape[static_cast<std::size_t>(i) + 2] = kernel->ints(i);
      }
    }
    return shape;
  }

  [[nodiscard]] std::optional<SymbolicShape> normalized_shape() const {
    const auto data = shape_of(node_.input(0));
    const auto axis = data ? axis_of(number(node_, "axis", -1), data->size()) : std::nullopt;
    return axis ? std::optional(SymbolicShape(data->begin() + static_cast<std::ptrdiff_t>(*axis),
                                              data->end()))
                : std::nullopt;
  }

  const onnx::NodeProto& node_;
  int input_;
  const FormLookup& lookup_;
};

}  // namespace

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

bool keeps_type(const onnx::NodeProto& node, int input) {
  const std::string& op = node.op_type();
  const bool known = node.domain().empty() || node.domain() == "ai.onnx";
  return known && node.output_size() > 0 &&
         (is_one_of(kAllInputs, op) || (input == 0 && is_one_of(kFirstInput, op)) ||
          (input > 0 && op == "Where"));
}

InferredForm infer_input(const onnx::NodeProto& node, int input, const FormLookup& lookup) {
  const bool known = node.domain().empty() || node.domain() == "ai.onnx";
  if (!known || node.output_size() == 0 || node.input_size() == 0) {
    return {};
  }
  const Reader reader(node, input, lookup);
  return {reader.elem_type(), reader.shape(), reader.bound()};
}

}  // namespace onnx_external
