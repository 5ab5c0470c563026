#include "onnx/operator_rules.h"

#include <algorithm>
#include <array>

#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/shape_rules.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kNone = 0;
constexpr std::uint32_t kFirst = 0b1;
constexpr std::uint32_t kFirstAndThird = 0b101;
constexpr std::uint32_t kSecondAndThird = 0b110;
constexpr std::uint32_t kAllButFifth = ~std::uint32_t{0b10000};
constexpr std::uint32_t kAll = ~std::uint32_t{0};
constexpr std::int32_t kAny = onnx::TensorProto::UNDEFINED;

void cast_types(NodeTypes& node) {
  same_shape(node);
  const auto type = static_cast<std::int32_t>(node.number("to", 0));
  node.types().refine_type(node.out(0), type);
  if (type == onnx::TensorProto::INT64) {
    same_numbers(node);
  }
}

void cast_like_types(NodeTypes& node) {
  same_shape(node);
  node.types().refine_type(node.out(0), node.types()[node.in(1)].elem_type);
  node.types().refine_type(node.in(1), node.types()[node.out(0)].elem_type);
}

void filled_types(NodeTypes& node) {
  const onnx::AttributeProto* value = node.attribute("value");
  node.types().refine_type(node.out(0), value != nullptr && value->has_t()
                                            ? value->t().data_type()
                                            : onnx::TensorProto::FLOAT);
  if (const auto& sizes = node.numbers(node.in(0))) {
    node.types().refine_shape(node.out(0), SymbolicShape(sizes->begin(), sizes->end()));
  }
}

// Sorted by name.
constexpr auto kRules = std::to_array<OperatorRule>({
    {"Abs", kFirst, kFirst, kAny, same_shape},
    {"Acos", kFirst, kFirst, kAny, same_shape},
    {"Acosh", kFirst, kFirst, kAny, same_shape},
    {"Add", kAll, kFirst, kAny, add_shapes},
    {"And", kAll, kFirst, onnx::TensorProto::BOOL, broadcast_shapes},
    {"ArgMax", kNone, kNone, onnx::TensorProto::INT64, nullptr},
    {"ArgMin", kNone, kNone, onnx::TensorProto::INT64, nullptr},
    {"Asin", kFirst, kFirst, kAny, same_shape},
    {"Asinh", kFirst, kFirst, kAny, same_shape},
    {"Atan", kFirst, kFirst, kAny, same_shape},
    {"Atanh", kFirst, kFirst, kAny, same_shape},
    {"AveragePool", kFirst, kFirst, kAny, nullptr},
    {"BatchNormalization", kAll, kFirst, kAny, channel_shapes},
    {"Cast", kNone, kNone, kAny, cast_types},
    {"CastLike", kNone, kNone, kAny, cast_like_types},
    {"Ceil", kFirst, kFirst, kAny, same_shape},
    {"Celu", kFirst, kFirst, kAny, same_shape},
    {"Clip", kAll, kFirst, kAny, same_shape},
    {"Compress", kFirst, kFirst, kAny, nullptr},
    {"Concat", kAll, kFirst, kAny, concat_shapes},
    {"Constant", kNone, kNone, kAny, constant_numbers},
    {"ConstantOfShape", kNone, kNone, kAny, filled_types},
    {"Conv", kAll, kFirst, kAny, conv_shapes},
    {"ConvTranspose", kAll, kFirst, kAny, conv_transpose_shapes},
    {"Cos", kFirst, kFirst, kAny, same_shape},
    {"Cosh", kFirst, kFirst, kAny, same_shape},
    {"CumSum", kFirst, kFirst, kAny, same_shape},
    {"DepthToSpace", kFirst, kFirst, kAny, nullptr},
    {"Det", kAll, kFirst, kAny, nullptr},
    {"Div", kAll, kFirst, kAny, broadcast_shapes},
    {"Dropout", kFirst, kFirst, kAny, same_shape},
    {"Einsum", kAll, kFirst, kAny, nullptr},
    {"Elu", kFirst, kFirst, kAny, same_shape},
    {"Equal", kAll, kNone, onnx::TensorProto::BOOL, broadcast_shapes},
    {"Erf", kFirst, kFirst, kAny, same_shape},
    {"Exp", kFirst, kFirst, kAny, same_shape},
    {"Expand", kFirst, kFirst, kAny, expand_shapes},
    {"Flatten", kFirst, kFirst, kAny, nullptr},
    {"Floor", kFirst, kFirst, kAny, same_shape},
    {"GRU", kAllButFifth, kAll, kAny, recurrent_shapes},
    {"Gather", kFirst, kFirst, kAny, gather_shapes},
    {"GatherElements", kFirst, kFirst, kAny, nullptr},
    {"GatherND", kFirst, kFirst, kAny, nullptr},
    {"Gelu", kFirst, kFirst, kAny, same_shape},
    {"Gemm", kAll, kFirst, kAny, gemm_shapes},
    {"GlobalAveragePool", kFirst, kFirst, kAny, nullptr},
    {"GlobalLpPool", kFirst, kFirst, kAny, nullptr},
    {"GlobalMaxPool", kFirst, kFirst, kAny, nullptr},
    {"Greater", kAll, kNone, onnx::TensorProto::BOOL, broadcast_shapes},
    {"GreaterOrEqual", kAll, kNone, onnx::TensorProto::BOOL, broadcast_shapes},
    {"GroupNormalization", kAll, kFirst, kAny, same_shape},
    {"HardSigmoid", kFirst, kFirst, kAny, same_shape},
    {"HardSwish", kFirst, kFirst, kAny, same_shape},
    {"Hardmax", kFirst, kFirst, kAny, same_shape},
    {"Identity", kFirst, kFirst, kAny, same_shape},
    {"InstanceNormalization", kAll, kFirst, kAny, channel_shapes},
    {"LRN", kFirst, kFirst, kAny, same_shape},
    {"LSTM", kAllButFifth, kAll, kAny, recurrent_shapes},
    {"LayerNormalization", kAll, kFirst, kAny, layer_norm_shapes},
    {"LeakyRelu", kFirst, kFirst, kAny, same_shape},
    {"Less", kAll, kNone, onnx::TensorProto::BOOL, broadcast_shapes},
    {"LessOrEqual", kAll, kNone, onnx::TensorProto::BOOL, broadcast_shapes},
    {"Log", kFirst, kFirst, kAny, same_shape},
    {"LogSoftmax", kFirst, kFirst, kAny, same_shape},
    {"LpNormalization", kFirst, kFirst, kAny, same_shape},
    {"LpPool", kFirst, kFirst, kAny, nullptr},
    {"MatMul", kAll, kFirst, kAny, matmul_shapes},
    {"Max", kAll, kFirst, kAny, broadcast_shapes},
    {"MaxPool", kFirst, kFirst, kAny, nullptr},
    {"Mean", kAll, kFirst, kAny, broadcast_shapes},
    {"MeanVarianceNormalization", kFirst, kFirst, kAny, same_shape},
    {"Min", kAll, kFirst, kAny, broadcast_shapes},
    {"Mish", kFirst, kFirst, kAny, same_shape},
    {"Mod", kAll, kFirst, kAny, broadcast_shapes},
    {"Mul", kAll, kFirst, kAny, arithmetic_shapes},
    {"Neg", kFirst, kFirst, kAny, same_shape},
    {"NonZero", kNone, kNone, onnx::TensorProto::INT64, nullptr},
    {"Not", kAll, kFirst, onnx::TensorProto::BOOL, same_shape},
    {"Or", kAll, kFirst, onnx::TensorProto::BOOL, broadcast_shapes},
    {"PRelu", kAll, kFirst, kAny, slope_shapes},
    {"Pad", kFirstAndThird, kFirst, kAny, nullptr},
    {"Pow", kFirst, kFirst, kAny, broadcast_shapes},
    {"RNN", kAllButFifth, kAll, kAny, recurrent_shapes},
    {"Range", kAll, kFirst, kAny, nullptr},
    {"Reciprocal", kFirst, kFirst, kAny, same_shape},
    {"ReduceL1", kFirst, kFirst, kAny, nullptr},
    {"ReduceL2", kFirst, kFirst, kAny, nullptr},
    {"ReduceLogSum", kFirst, kFirst, kAny, nullptr},
    {"ReduceLogSumExp", kFirst, kFirst, kAny, nullptr},
    {"ReduceMax", kFirst, kFirst, kAny, nullptr},
    {"ReduceMean", kFirst, kFirst, kAny, nullptr},
    {"ReduceMin", kFirst, kFirst, kAny, nullptr},
    {"ReduceProd", kFirst, kFirst, kAny, nullptr},
    {"ReduceSum", kFirst, kFirst, kAny, nullptr},
    {"ReduceSumSquare", kFirst, kFirst, kAny, nullptr},
    {"Relu", kFirst, kFirst, kAny, same_shape},
    {"Reshape", kFirst, kFirst, kAny, reshape_shapes},
    {"Resize", kFirst, kFirst, kAny, nullptr},
    {"ReverseSequence", kFirst, kFirst, kAny, nullptr},
    {"Round", kFirst, kFirst, kAny, same_shape},
    {"ScatterElements", kFirstAndThird, kFirst, kAny, nullptr},
    {"ScatterND", kFirstAndThird, kFirst, kAny, nullptr},
    {"Selu", kFirst, kFirst, kAny, same_shape},
    {"Shape", kNone, kNone, onnx::TensorProto::INT64, shape_numbers},
    {"Shrink", kFirst, kFirst, kAny, same_shape},
    {"Sigmoid", kFirst, kFirst, kAny, same_shape},
    {"Sign", kFirst, kFirst, kAny, same_shape},
    {"Sin", kFirst, kFirst, kAny, same_shape},
    {"Sinh", kFirst, kFirst, kAny, same_shape},
    {"Size", kNone, kNone, onnx::TensorProto::INT64, nullptr},
    {"Slice", kFirst, kFirst, kAny, slice_shapes},
    {"Softmax", kFirst, kFirst, kAny, same_shape},
    {"Softplus", kFirst, kFirst, kAny, same_shape},
    {"Softsign", kFirst, kFirst, kAny, same_shape},
    {"SpaceToDepth", kFirst, kFirst, kAny, nullptr},
    {"Split", kFirst, kAll, kAny, split_shapes},
    {"Sqrt", kFirst, kFirst, kAny, same_shape},
    {"Squeeze", kFirst, kFirst, kAny, squeeze_shapes},
    {"Sub", kAll, kFirst, kAny, arithmetic_shapes},
    {"Sum", kAll, kFirst, kAny, broadcast_shapes},
    {"Tan", kFirst, kFirst, kAny, same_shape},
    {"Tanh", kFirst, kFirst, kAny, same_shape},
    {"ThresholdedRelu", kFirst, kFirst, kAny, same_shape},
    {"Tile", kFirst, kFirst, kAny, nullptr},
    {"TopK", kFirst, kFirst, kAny, nullptr},
    {"Transpose", kAll, kFirst, kAny, transpose_shapes},
    {"Trilu", kFirst, kFirst, kAny, same_shape},
    {"Unsqueeze", kFirst, kFirst, kAny, unsqueeze_shapes},
    {"Upsample", kFirst, kFirst, kAny, nullptr},
    {"Where", kSecondAndThird, kFirst, kAny, where_shapes},
    {"Xor", kAll, kFirst, onnx::TensorProto::BOOL, broadcast_shapes},
});
static_assert(std::is_sorted(kRules.begin(), kRules.end(),
                             [](const OperatorRule& a, const OperatorRule& b) {
                               return a.op < b.op;
                             }));

}  // namespace

const OperatorRule* rule_of(const onnx::NodeProto& node) {
  if (!is_default_domain(node)) {
    return nullptr;
  }
  const std::string_view op = node.op_type();
  const auto* const found = std::lower_bound(
      kRules.begin(), kRules.end(), op,
      [](const OperatorRule& rule, std::string_view name) { return rule.op < name; });
  return found != kRules.end() && found->op == op ? found : nullptr;
}

}  // namespace onnx_external
