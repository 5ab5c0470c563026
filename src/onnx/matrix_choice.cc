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

// Returns whether the bytes that the kernel produces have the form that the nodes read. MatMulNBits
// reads them unchanged. An embedding has no room for a padded block; neither has the standard form,
// which also has none for a row of zero points that ends within a byte.
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
  std::shared_ptr<const KeptInputs> inputs = {};
  std::string unkept = {};
  std::optional<std::size_t> pattern = {};
};

using NodeSet = std::unordered_set<const onnx::NodeProto*>;

bool matches(const GraphWeight& weight, std::string_view pattern) {
  return matches_pattern(weight.name, pattern) || matches_pattern(weight.key, pattern);
}

// Returns the last of the patterns with a scheme that matches the weight; nullopt if none does.
std::optional<std::size_t> own_scheme(const GraphWeight& weight, const QuantizeOptions& options) {
  std::size_t i = options.weights.size();
  while (i > 0 && !matches(weight, options.weights[i - 1].pattern)) {
    --i;
  }
  return i == 0 ? std::nullopt : std::optional(i - 1);
}

// Returns the reason, given by the options or the role of a matrix, not to quantize it.
Verdict judge_use(const GraphWeight& weight, const Matrix& matrix, const QuantizeOptions& options) {
  for (const std::string& pattern : options.keep_float) {
    if (matches(weight, pattern)) {
      return {FloatReason::kPattern, pattern};
    }
  }
  if (matrix.k > kMaxQuantizedColumns) {
    return {FloatReason::kLong};
  }
  if (matrix.has(MatrixRole::kRouter)) {
    return {FloatReason::kRouter};
  }
  const bool is_head = matrix.has(MatrixRole::kHead) || matrix.is_gathered();
  const bool stays = is_head && options.head == HeadWeights::kFloat && !own_scheme(weight, options);
  return {stays ? FloatReason::kChosen : FloatReason::kNone};
}

Verdict judge_matrix(const GraphWeight& weight, const Matrix& matrix,
                     const QuantizeOptions& options, const NodeSet& multiplied_gathers) {
  if (matrix.k < options.min_columns || matrix.n < options.min_rows) {
    return {FloatReason::kSmall};
  }
  const bool is_head = matrix.has(MatrixRole::kHead) || matrix.is_gathered();
  const auto pattern = own_scheme(weight, options);
  Scheme scheme = pattern   ? options.weights[*pattern].scheme
                  : is_head ? head_scheme(options)
                            : options.scheme;
  scheme.scales = dtype_from_onnx(matrix.data_type).value_or(scheme.scales);
  if (matrix.is_gathered() && options.form == QuantizedForm::kDequantizeLinear) {
    const bool is_multiplied_at_once =
        std::any_of(matrix.uses.begin(), matrix.uses.end(),
                    [&](const MatrixUse& use) { return multiplied_gathers.contains(use.node); });
    if (scheme.bits == 4 || is_multiplied_at_once) {
      return {FloatReason::kForm,
              scheme.bits == 4 ? "cannot gather 4-bit codes" : "has no rows that a product reads"};
    }
  }
  while (scheme.block > kMinQuantizedBlock && !fits(matrix, scheme, options.form)) {
    scheme.block /= 2;
  }
  return {fits(matrix, scheme, options.form) ? FloatReason::kNone : FloatReason::kBlocks,
          "",
          scheme,
          {},
          {},
          pattern};
}

// Returns the reason why no node can read the codes; "" if one can.
std::string wrong_with_kept(const Matrix& matrix, const KeptMatrix& kept, std::int64_t opset) {
  constexpr std::int64_t kTermsOpset = 15;  // Shape without the last dimension
  if (kept.scheme.terms && opset < kTermsOpset) {
    return "its zero points are not integers, and the opset of the graph is older than 15";
  }
  if (matrix.is_gathered() && !kept.inputs->empty()) {
    return "an embedding cannot reorder or scale its columns";
  }
  if (matrix.is_gathered() && !fits(matrix, kept.scheme, QuantizedForm::kMatMulNBits)) {
    return "no block size for the embedding's scales divides its rows";
  }
  return "";
}

Result<Verdict> judge_kept(const GraphWeight& weight, const Matrix& matrix, const KeepMatrix& keep,
                           std::int64_t opset) {
  auto kept = keep ? keep(weight, matrix) : Result<std::optional<KeptMatrix>>(std::nullopt);
  if (!kept && kept.error().code != ErrorCode::kUnsupported) {
    return fail_in(quote(weight.name), std::move(kept).error());
  }
  if (kept && !*kept) {
    return Verdict{FloatReason::kFloats};
  }
  std::string wrong = kept ? wrong_with_kept(matrix, **kept, opset) : kept.error().message;
  if (!wrong.empty()) {
    return Verdict{FloatReason::kUnkept, std::move(wrong)};
  }
  return Verdict{FloatReason::kNone, "", (*kept)->scheme, (*kept)->inputs};
}

// Returns the tensors of the standard form, in which the types of codes and zero points have as
// many bits as the codes.
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
  if (scheme.terms) {
    tensors.push_back({Part::kTerms, ".terms", matrix.data_type, layout.zero_points.shape});
  }
  return tensors;
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

// Lists the Gathers whose rows a product reads. If both inputs of the product come from
// DequantizeLinear, ONNX Runtime replaces it by an integer product, which does not support blocks
// and fails.
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

class MatrixChooser {
 public:
  MatrixChooser(const Model& model, const WeightGraph& graph, const KeepMatrix& keep,
                MatrixPlan& plan)
      : keep_(keep),
        plan_(plan),
        names_(model.facts()),
        multiplied_gathers_(list_multiplied_gathers(graph)),
        opset_(opset_of(model.proto())) {}

  Status choose(std::size_t i) {
    GraphWeight& weight = plan_.weights[i];
    TRY_ASSIGN(const auto verdicts, judge(weight));
    for (std::size_t m = 0; weight.reason == FloatReason::kNone && m < verdicts.size(); ++m) {
      TRY(add(i, m, verdicts[m]));
    }
    return {};
  }

 private:
  // Returns the verdicts on the weight's matrices. If one of them stays in floats, all of them do.
  Result<std::vector<Verdict>> judge(GraphWeight& weight) const {
    std::vector<Verdict> verdicts;
    for (const Matrix& matrix : weight.matrices) {
      TRY_ASSIGN(auto verdict, judge(weight, matrix));
      if (verdict.reason != FloatReason::kNone) {
        weight.reason = verdict.reason;
        weight.detail = std::move(verdict.detail);
        break;
      }
      verdicts.push_back(std::move(verdict));
    }
    return verdicts;
  }

  [[nodiscard]] Result<Verdict> judge(const GraphWeight& weight, const Matrix& matrix) const {
    Verdict verdict = judge_use(weight, matrix, plan_.options);
    if (verdict.reason != FloatReason::kNone || plan_.options.keep == KeepCodes::kNo) {
      return verdict.reason != FloatReason::kNone
                 ? std::move(verdict)
                 : judge_matrix(weight, matrix, plan_.options, multiplied_gathers_);
    }
    TRY_ASSIGN(verdict, judge_kept(weight, matrix, keep_, opset_));
    if (verdict.reason == FloatReason::kUnkept && plan_.options.keep == KeepCodes::kElseScheme) {
      Verdict other = judge_matrix(weight, matrix, plan_.options, multiplied_gathers_);
      if (other.reason == FloatReason::kNone) {
        other.unkept = std::move(verdict.detail);
        return other;
      }
    }
    return verdict;
  }

  Status add(std::size_t i, std::size_t m, const Verdict& verdict) {
    const GraphWeight& weight = plan_.weights[i];
    std::string base = weight.name;
    if (base.ends_with(kTransposedSuffix)) {
      base.resize(base.size() - kTransposedSuffix.size());
    }
    base += weight.matrices.size() == 1 ? "" : "." + std::to_string(m);
    const Matrix& matrix = weight.matrices[m];
    const Scheme& scheme = verdict.scheme;
    TRY_ASSIGN_IN(quote(weight.name), const auto layout, packed_layout(scheme, matrix.n, matrix.k));
    auto tensors = plan_.options.form == QuantizedForm::kMatMulNBits
                       ? contrib_tensors(matrix, scheme, layout)
                       : standard_tensors(matrix, scheme, layout);
    for (MatrixTensor& tensor : tensors) {
      tensor.name = names_.take(base + tensor.name);
    }
    plan_.matrices.push_back(
        {i, m, scheme, verdict.inputs, verdict.unkept, std::move(tensors), verdict.pattern});
    return {};
  }

  const KeepMatrix& keep_;
  MatrixPlan& plan_;
  FreshNames names_;
  NodeSet multiplied_gathers_;
  std::int64_t opset_;
};

// Lists the shapes, axes and indices that only removed nodes read.
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

Status check_form(const Model& model, const QuantizeOptions& options) {
  constexpr std::int64_t kFirstOpset = 21;
  const std::int64_t opset = opset_of(model.proto());
  if (options.form == QuantizedForm::kDequantizeLinear && opset < kFirstOpset) {
    return fail(ErrorCode::kUnsupported,
                "the model has opset " + std::to_string(opset) +
                    ", whose DequantizeLinear does not support blocks; export it with opset 21 or "
                    "newer, or choose the form matmulnbits");
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

std::string_view ChosenMatrix::name_of(MatrixTensor::Part part) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const MatrixTensor& tensor) { return tensor.part == part; });
  return found == tensors.end() ? std::string_view() : found->name;
}

Result<MatrixPlan> choose_matrices(const Model& model, std::vector<GraphWeight> weights,
                                   const QuantizeOptions& options, const KeepMatrix& keep) {
  TRY(check_form(model, options));
  MatrixPlan plan;
  plan.weights = std::move(weights);
  plan.options = options;
  TRY_ASSIGN(const auto graph, WeightGraph::of(model));
  MatrixChooser chooser(model, graph, keep, plan);
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    TRY(chooser.choose(i));
  }
  plan.unread_inline = list_unread(model, graph, plan);
  return plan;
}

Status check_patterns(const QuantizeOptions& options, std::span<const MatrixPlan* const> plans) {
  std::vector<bool> decides(options.weights.size());
  std::string example;
  for (const MatrixPlan* plan : plans) {
    for (const ChosenMatrix& chosen : plan->matrices) {
      if (chosen.pattern) {
        decides[*chosen.pattern] = true;
      }
      example = example.empty() ? plan->weights[chosen.weight].name : example;
    }
  }
  std::string idle;
  for (std::size_t i = 0; i < decides.size(); ++i) {
    if (!decides[i]) {
      idle += (idle.empty() ? "" : ", ") + quote(options.weights[i].pattern);
    }
  }
  if (idle.empty()) {
    return {};
  }
  return fail(ErrorCode::kNotFound,
              "these patterns do not determine the scheme of any quantized weight: " + idle +
                  "; a pattern must match the whole name or key of a weight, such as " +
                  quote(example) + ", that no later pattern matches");
}

tl::unexpected<Error> nothing_to_quantize(const QuantizeOptions& options) {
  return fail(ErrorCode::kUnsupported,
              "nothing to quantize: no MatMul, Gemm or Gather reads a float matrix with at least " +
                  std::to_string(options.min_columns) + " columns and " +
                  std::to_string(options.min_rows) +
                  " rows, other than those that the options exclude");
}

}  // namespace onnx_external
