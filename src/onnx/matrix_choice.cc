#include "onnx/matrix_choice.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"
#include "onnx/graph_facts.h"
#include "onnx/model_access.h"
#include "onnx/weight_graph.h"
#include "tensor/quantize/packed_layout.h"

namespace onnx_external {
namespace {

constexpr std::string_view kTransposedSuffix = ".transposed";

// Names that the model does not have.
class FreshNames {
 public:
  explicit FreshNames(const GraphFacts& facts)
      : taken_(facts.defined_names.begin(), facts.defined_names.end()) {
    for (const Slot& slot : facts.slots) {
      taken_.insert(slot.name);
    }
  }

  std::string take(const std::string& wanted) {
    std::string name = wanted;
    for (std::size_t i = 1; !taken_.insert(name).second; ++i) {
      name = wanted + "_" + std::to_string(i);
    }
    return name;
  }

 private:
  OwnedNameSet taken_;
};

// Whether the bytes that the kernel makes are those that the nodes read. An embedding has no room
// for a padded block.
bool fits(const Matrix& matrix, std::uint32_t block) {
  return !matrix.is_gathered() || matrix.k % block == 0;
}

struct Verdict {
  FloatReason reason = FloatReason::kNone;
  std::string detail = {};
  Scheme scheme = {};
};

Verdict judge_matrix(const GraphWeight& weight, const Matrix& matrix,
                     const QuantizeOptions& options) {
  for (const std::string& pattern : options.keep_float) {
    if (matches_pattern(weight.name, pattern) || matches_pattern(weight.key, pattern)) {
      return {FloatReason::kPattern, pattern};
    }
  }
  if (matrix.k < options.min_columns || matrix.n < options.min_rows) {
    return {FloatReason::kSmall};
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
  while (scheme.block > kMinQuantizedBlock && !fits(matrix, scheme.block)) {
    scheme.block /= 2;
  }
  return {fits(matrix, scheme.block) ? FloatReason::kNone : FloatReason::kBlocks, "", scheme};
}

// The schemes of a weight's matrices; nothing if one of them stays as it is, and so all do.
std::optional<std::vector<Scheme>> schemes_of(GraphWeight& weight, const QuantizeOptions& options) {
  std::vector<Scheme> schemes;
  for (const Matrix& matrix : weight.matrices) {
    Verdict verdict = judge_matrix(weight, matrix, options);
    if (verdict.reason != FloatReason::kNone) {
      weight.reason = verdict.reason;
      weight.detail = std::move(verdict.detail);
      return std::nullopt;
    }
    schemes.push_back(verdict.scheme);
  }
  return weight.reason == FloatReason::kNone ? std::optional(std::move(schemes)) : std::nullopt;
}

Result<std::vector<MatrixTensor>> tensors_of(const Matrix& matrix, const Scheme& scheme,
                                             const std::string& base, FreshNames& names) {
  using Part = MatrixTensor::Part;
  TRY_ASSIGN(const PackedLayout layout, packed_layout(scheme, matrix.n, matrix.k));
  std::vector<MatrixTensor> tensors;
  const auto add = [&](Part part, const char* suffix, const PackedPart& packed, Shape dims) {
    tensors.push_back(
        {part, names.take(base + suffix), onnx_data_type(packed.dtype), std::move(dims)});
  };
  if (matrix.is_multiplied()) {
    add(Part::kCodes, ".codes", layout.codes, layout.codes.shape);
  }
  if (matrix.is_gathered()) {
    const Shape& codes = layout.codes.shape;
    add(Part::kTable, ".table", layout.codes, {codes[0], codes[1] * codes[2]});
  }
  add(Part::kScales, ".scales", layout.scales, layout.scales.shape);
  if (scheme.zero_points) {
    add(Part::kZeroPoints, ".zero_points", layout.zero_points, layout.zero_points.shape);
  }
  return tensors;
}

Status choose(std::size_t i, MatrixPlan& plan, FreshNames& names) {
  GraphWeight& weight = plan.weights[i];
  const auto schemes = schemes_of(weight, plan.options);
  for (std::size_t m = 0; schemes && m < schemes->size(); ++m) {
    std::string base = weight.name;
    if (base.ends_with(kTransposedSuffix)) {
      base.resize(base.size() - kTransposedSuffix.size());
    }
    base += schemes->size() == 1 ? "" : "." + std::to_string(m);
    TRY_ASSIGN(auto tensors, tensors_of(weight.matrices[m], (*schemes)[m], base, names));
    plan.matrices.push_back({i, m, (*schemes)[m], std::move(tensors)});
  }
  return {};
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

}  // namespace

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
  MatrixPlan plan;
  plan.weights = std::move(weights);
  plan.options = options;
  FreshNames names(model.facts());
  for (std::size_t i = 0; i < plan.weights.size(); ++i) {
    TRY(choose(i, plan, names));
  }
  TRY_ASSIGN(const auto graph, WeightGraph::of(model));
  plan.unread_inline = list_unread(model, graph, plan);
  return plan;
}

Result<MatrixPlan> plan_matrices(const Model& model,
                                 std::span<const std::optional<StoredSlot>> stored,
                                 const QuantizeOptions& options, MatchedInputs inputs) {
  TRY_ASSIGN(auto weights, find_matrices(model, stored, inputs));
  TRY_ASSIGN(auto plan, choose_matrices(model, std::move(weights), options));
  if (plan.matrices.empty()) {
    return fail(ErrorCode::kUnsupported,
                "nothing to quantize: no MatMul, Gemm or Gather of the graph reads a float matrix "
                "of " +
                    std::to_string(options.min_columns) + " columns and " +
                    std::to_string(options.min_rows) +
                    " rows or more that the options do not keep in float");
  }
  return plan;
}

}  // namespace onnx_external
