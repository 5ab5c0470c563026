#include "onnx/matrix_choice.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/model_access.h"
#include "onnx/weight_graph.h"
#include "tensor/quantize/packed_layout.h"

namespace onnx_external {
namespace {

constexpr std::string_view kTransposedSuffix = ".transposed";

// Whether the bytes that the kernel makes are those that the nodes read. MatMulNBits reads them as
// they are. An embedding has no room for a padded block; the standard form has none either, nor for
// a row of zero points that ends within a byte.
bool fits(const Matrix& matrix, const Scheme& scheme, QuantizedForm form) {
  const bool is_standard = form == QuantizedForm::kDequantizeLinear;
  if (!is_standard && !matrix.is_gathered()) {
    return true;
  }
  const bool is_whole = !is_standard || scheme.bits == 8 || !scheme.zero_points || matrix.n == 1 ||
                        matrix.k / scheme.block % 2 == 0;
  return matrix.k % scheme.block == 0 && is_whole;
}

struct Verdict {
  FloatReason reason = FloatReason::kNone;
  std::string detail = {};
  Scheme scheme = {};
};

using NodeSet = std::unordered_set<const onnx::NodeProto*>;

Verdict judge_matrix(const GraphWeight& weight, const Matrix& matrix,
                     const QuantizeOptions& options, const NodeSet& multiplied_gathers) {
  for (const std::string& pattern : options.keep_float) {
    if (matches_pattern(weight.name, pattern) || matches_pattern(weight.key, pattern)) {
      return {FloatReason::kPattern, pattern};
    }
  }
  if (matrix.k < options.min_columns || matrix.n < options.min_rows) {
    return {FloatReason::kSmall};
  }
  if (matrix.k > kMaxQuantizedColumns) {
    return {FloatReason::kLong};
  }
  if (matrix.has(MatrixRole::kRouter)) {
    return {FloatReason::kRouter};
  }
  const bool is_head = matrix.has(MatrixRole::kHead) || matrix.is_gathered();
  if (is_head && options.head == HeadWeights::kFloat) {
    return {FloatReason::kChosen};
  }
  Scheme scheme = is_head ? head_scheme(options) : options.scheme;
  scheme.scales = dtype_from_onnx(matrix.data_type).value_or(scheme.scales);
  if (matrix.is_gathered() && options.form == QuantizedForm::kDequantizeLinear) {
    const bool is_multiplied_at_once =
        std::any_of(matrix.uses.begin(), matrix.uses.end(),
                    [&](const MatrixUse& use) { return multiplied_gathers.contains(use.node); });
    if (scheme.bits == 4 || is_multiplied_at_once) {
      return {FloatReason::kForm,
              scheme.bits == 4 ? "gathers no codes of 4 bits" : "has no rows that a product reads"};
    }
  }
  while (scheme.block > kMinQuantizedBlock && !fits(matrix, scheme, options.form)) {
    scheme.block /= 2;
  }
  return {fits(matrix, scheme, options.form) ? FloatReason::kNone : FloatReason::kBlocks, "",
          scheme};
}

// The schemes of a weight's matrices; nothing if one of them stays as it is, and so all do.
std::optional<std::vector<Scheme>> schemes_of(GraphWeight& weight, const QuantizeOptions& options,
                                              const NodeSet& multiplied_gathers) {
  std::vector<Scheme> schemes;
  for (const Matrix& matrix : weight.matrices) {
    Verdict verdict = judge_matrix(weight, matrix, options, multiplied_gathers);
    if (verdict.reason != FloatReason::kNone) {
      weight.reason = verdict.reason;
      weight.detail = std::move(verdict.detail);
      return std::nullopt;
    }
    schemes.push_back(verdict.scheme);
  }
  return weight.reason == FloatReason::kNone ? std::optional(std::move(schemes)) : std::nullopt;
}

// The tensors of the standard form: codes and zero points have types of as many bits.
std::vector<MatrixTensor> standard_tensors(const Matrix& matrix, const Scheme& scheme,
                                           const PackedLayout& layout) {
  using Part = MatrixTensor::Part;
  const std::int32_t type = onnx_data_type(scheme.bits == 4 ? DType::kUInt4 : DType::kUInt8);
  std::vector<MatrixTensor> tensors;
  tensors.push_back({Part::kCodes, ".codes", type, {matrix.n, matrix.k}});
  tensors.push_back({Part::kScales, ".scales", matrix.data_type, layout.scales.shape});
  if (scheme.zero_points) {
    tensors.push_back({Part::kZeroPoints, ".zero_points", type, layout.scales.shape});
  }
  return tensors;
}

std::vector<MatrixTensor> contrib_tensors(const Matrix& matrix, const Scheme& scheme,
                                          const PackedLayout& layout) {
  using Part = MatrixTensor::Part;
  constexpr std::int32_t kBytes = onnx::TensorProto::UINT8;
  std::vector<MatrixTensor> tensors;
  const Shape& codes = layout.codes.shape;
  if (matrix.is_multiplied()) {
    tensors.push_back({Part::kCodes, ".codes", kBytes, codes});
  }
  if (matrix.is_gathered()) {
    tensors.push_back({Part::kTable, ".table", kBytes, {codes[0], codes[1] * codes[2]}});
  }
  tensors.push_back({Part::kScales, ".scales", matrix.data_type, layout.scales.shape});
  if (scheme.zero_points) {
    tensors.push_back({Part::kZeroPoints, ".zero_points", kBytes, layout.zero_points.shape});
  }
  return tensors;
}

Status choose(std::size_t i, const NodeSet& multiplied_gathers, MatrixPlan& plan,
              FreshNames& names) {
  GraphWeight& weight = plan.weights[i];
  const auto schemes = schemes_of(weight, plan.options, multiplied_gathers);
  for (std::size_t m = 0; schemes && m < schemes->size(); ++m) {
    std::string base = weight.name;
    if (base.ends_with(kTransposedSuffix)) {
      base.resize(base.size() - kTransposedSuffix.size());
    }
    base += schemes->size() == 1 ? "" : "." + std::to_string(m);
    const Matrix& matrix = weight.matrices[m];
    const Scheme& scheme = (*schemes)[m];
    TRY_ASSIGN_IN(quote(weight.name), const auto layout, packed_layout(scheme, matrix.n, matrix.k));
    auto tensors = plan.options.form == QuantizedForm::kMatMulNBits
                       ? contrib_tensors(matrix, scheme, layout)
                       : standard_tensors(matrix, scheme, layout);
    for (MatrixTensor& tensor : tensors) {
      tensor.name = names.take(base + tensor.name);
    }
    plan.matrices.push_back({i, m, (*schemes)[m], std::move(tensors)});
  }
  return {};
}

// The Gathers whose rows a product reads. If both of its inputs come from DequantizeLinear, ONNX
// Runtime makes an integer product of it, which knows no blocks and fails.
NodeSet list_multiplied_gathers(const WeightGraph& graph) {
  NodeSet found;
  for (const GraphNodeValues& node : graph.nodes()) {
    const bool is_product = node.node->op_type() == "MatMul" || node.node->op_type() == "Gemm";
    if (is_product && !node.inputs.empty() && node.inputs.front() != kNoValue) {
      auto producer = graph[node.inputs.front()].producer;
      while (producer != kNoProducer && graph.nodes()[producer].node->op_type() == "Cast" &&
             found.insert(graph.nodes()[producer].node).second) {  // else it was met before
        const auto& inputs = graph.nodes()[producer].inputs;
        producer = inputs.empty() || inputs.front() == kNoValue ? kNoProducer
                                                                : graph[inputs.front()].producer;
      }
      if (producer != kNoProducer) {
        found.insert(graph.nodes()[producer].node);
      }
    }
  }
  return found;
}

// Shapes, axes and indices that nothing but removed nodes read.
std::vector<std::size_t> list_unread(const Model& model, const WeightGraph& graph,
                                     const MatrixPlan& plan) {
  std::unordered_set<const onnx::NodeProto*> views;
  for (const GraphWeight& weight : plan.weights) {
    if (weight.reason == FloatReason::kNone) {
      views.insert(weight.views.begin(), weight.views.end());
    }
  }
  std::unordered_set<const onnx::TensorProto*> unread;
  for (ValueId value = 0; value < graph.values().size(); ++value) {
    const auto readers = graph.readers(value);
    const bool is_unread =
        !readers.empty() && graph[value].output_of == nullptr && graph[value].tensor != nullptr &&
        !graph[value].is_input &&
        std::all_of(readers.begin(), readers.end(), [&](ValueReader reader) {
          return reader.input > 0 && views.contains(graph.nodes()[reader.node].node);
        });
    if (is_unread) {
      unread.insert(graph[value].tensor);
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; !unread.empty() && i < model.inline_tensors().size(); ++i) {
    if (unread.contains(&ModelAccess::inline_proto(model, i))) {
      found.push_back(i);
    }
  }
  return found;
}

// The version of ONNX's own operators that the model imports.
std::int64_t opset_of(const onnx::ModelProto& model) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      return import.version();
    }
  }
  return 1;
}

Status check_form(const Model& model, const QuantizeOptions& options) {
  constexpr std::int64_t kFirstOpset = 21;
  const std::int64_t opset = opset_of(model.proto());
  if (options.form == QuantizedForm::kDequantizeLinear && opset < kFirstOpset) {
    return fail(ErrorCode::kUnsupported,
                "the model is of opset " + std::to_string(opset) +
                    ", whose DequantizeLinear knows no blocks; export it with opset 21 or newer, "
                    "or choose the form matmulnbits");
  }
  return {};
}

}  // namespace

FreshNames::FreshNames(const GraphFacts& facts)
    : taken_(facts.defined_names.begin(), facts.defined_names.end()) {
  for (const Slot& slot : facts.slots) {
    taken_.insert(slot.name);
  }
}

std::string FreshNames::take(const std::string& wanted) {
  std::string name = wanted;
  for (std::size_t i = 1; !taken_.insert(name).second; ++i) {
    name = wanted + "_" + std::to_string(i);
  }
  return name;
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t n = 0;
  std::size_t p = 0;
  std::size_t star = std::string_view::npos;  // the last * that was met
  std::size_t after = 0;                      // where the name goes on if that * takes one more
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n;
      ++p;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string_view ChosenMatrix::name_of(MatrixTensor::Part part) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const MatrixTensor& tensor) { return tensor.part == part; });
  return found == tensors.end() ? std::string_view() : found->name;
}

Result<MatrixPlan> choose_matrices(const Model& model, std::vector<GraphWeight> weights,
                                   const QuantizeOptions& options) {
  TRY(check_form(model, options));
  MatrixPlan plan;
  plan.weights = std::move(weights);
  plan.options = options;
  TRY_ASSIGN(const auto graph, WeightGraph::of(model));
  const NodeSet multiplied_gathers = list_multiplied_gathers(graph);
  FreshNames names(model.facts());
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    TRY(choose(i, multiplied_gathers, plan, names));
  }
  plan.unread_inline = list_unread(model, graph, plan);
  return plan;
}

Result<MatrixPlan> plan_matrices(const Model& model,
                                 std::span<const std::optional<StoredSlot>> stored,
                                 const QuantizeOptions& options, MatchedInputs inputs) {
  TRY_ASSIGN(auto weights, find_matrices(model, stored, inputs));
  TRY_ASSIGN(auto plan, choose_matrices(model, std::move(weights), options));
  return plan.matrices.empty() ? Result<MatrixPlan>(nothing_to_quantize(options)) : std::move(plan);
}

tl::unexpected<Error> nothing_to_quantize(const QuantizeOptions& options) {
  return fail(ErrorCode::kUnsupported,
              "nothing to quantize: no MatMul, Gemm or Gather of the graph reads a float matrix "
              "of " +
                  std::to_string(options.min_columns) + " columns and " +
                  std::to_string(options.min_rows) +
                  " rows or more that the options do not keep in float");
}

}  // namespace onnx_external
