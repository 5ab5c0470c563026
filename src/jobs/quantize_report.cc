#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/name_map.h"
#include "base/try.h"
#include "jobs/save_report.h"
#include "onnx/graph_facts.h"
#include "onnx/matrix_choice.h"
#include "save/planned_bytes.h"
#include "save/row_packer.h"

namespace onnx_external {
namespace {

// The tensors of a model by their names.
NameMap<const PlannedTensor*> tensors_of(const SavePlan& plan, std::uint32_t model) {
  NameMap<const PlannedTensor*> tensors;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index == model && tensor.packed) {
      tensors.emplace(tensor.name, &tensor);
    }
  }
  return tensors;
}

std::string_view role_of(const Matrix& matrix) {
  const bool is_head = matrix.has(MatrixRole::kHead);
  return role_name(is_head                ? MatrixRole::kHead
                   : matrix.is_gathered() ? MatrixRole::kEmbedding
                                          : MatrixRole::kLinear);
}

SavedMatrix report_of(const GraphWeight& weight, const ChosenMatrix& chosen,
                      const NameMap<const PlannedTensor*>& tensors,
                      const std::map<std::uint32_t, double>& errors) {
  const Matrix& matrix = weight.matrices[chosen.matrix];
  SavedMatrix report;
  report.weight = weight.name;
  report.role = role_of(matrix);
  report.is_gathered = matrix.is_gathered();
  report.scheme = chosen.scheme;
  report.unkept = chosen.unkept;
  report.rows = static_cast<std::uint64_t>(matrix.n);
  report.columns = static_cast<std::uint64_t>(matrix.k);
  report.bytes_before = onnx_nbytes(weight.data_type, std::array{matrix.n, matrix.k}).value_or(0);
  const auto first = tensors.find(chosen.tensors.front().name);
  if (first == tensors.end()) {
    return report;
  }
  report.key = first->second->key;
  const std::uint32_t head = *first->second->range;
  std::set<std::uint32_t> ranges;
  for (const MatrixTensor& tensor : chosen.tensors) {
    const auto planned = tensors.find(tensor.name);
    if (planned != tensors.end() && ranges.insert(*planned->second->range).second) {
      report.bytes += planned->second->nbytes;
    }
  }
  const auto error = errors.find(head);
  if (error != errors.end() && !chosen.scheme.kept) {
    report.error = error->second;
  }
  return report;
}

// Adds the runtimes that can run the models; docs/quantize.md, "The nodes", has the versions.
void note_requirements(const QuantizeOptions& options, SaveReport& report) {
  const bool has_codes = std::any_of(report.models.begin(), report.models.end(),
                                     [](const auto& model) { return !model.quantized.empty(); });
  if (!has_codes) {
    return;
  }
  bool has_2_bits = false;
  bool gathers_2_bits = false;
  bool has_8_bits = false;
  bool gathers_8_bits = false;
  bool is_for_cpus = false;
  for (const SavedModel& model : report.models) {
    for (const SavedMatrix& matrix : model.quantized) {
      has_2_bits = has_2_bits || matrix.scheme.bits == 2;
      gathers_2_bits = gathers_2_bits || (matrix.scheme.bits == 2 && matrix.is_gathered);
      has_8_bits = has_8_bits || matrix.scheme.bits == 8;
      gathers_8_bits = gathers_8_bits || (matrix.scheme.bits == 8 && matrix.is_gathered);
      is_for_cpus = is_for_cpus || (matrix.scheme.bits == 4 && matrix.scheme.block == 256);
    }
  }
  const bool is_standard = options.form == QuantizedForm::kDequantizeLinear;
  if (is_standard) {
    report.notes.emplace_back(has_8_bits
                                  ? "ONNX Runtime multiplies by these codes directly since 1.26; "
                                    "earlier versions convert them to floats in each run"
                                  : "ONNX Runtime multiplies by these codes directly since 1.20");
  } else {
    const bool needs_newest =
        has_2_bits || gathers_8_bits || (has_8_bits && options.accuracy_level == 0);
    report.notes.push_back(std::string("the quantized model needs ONNX Runtime ") +
                           (gathers_2_bits ? "1.28"
                            : needs_newest ? "1.24"
                            : has_8_bits   ? "1.22"
                                           : "1.20") +
                           " or newer");
  }
  if (is_for_cpus) {
    report.notes.emplace_back("4-bit codes in blocks of 256 run only on CPUs");
  }
}

// The rows of a sample: groups that are spread over the matrix.
constexpr std::uint64_t kSampledGroups = 8;
constexpr std::uint64_t kSampledRows = 8;

Result<double> sampled_error(const PlannedTensor& tensor, const Checkpoint& checkpoint,
                             IoBuffer& tile, PackingBuffers& buffers) {
  const DerivedView view = planned_view(checkpoint, tensor);
  const RowPacker rows(checkpoint, *view, tensor.cast_to, *tensor.packed);
  const std::uint64_t all = tensor.packed->rows;
  const std::uint64_t group = rows.needs_tile() ? rows.chunk_rows(1) : kSampledRows;
  const std::uint64_t groups = rows.needs_tile() ? 1 : kSampledGroups;
  const std::uint64_t step = std::max<std::uint64_t>(group, all / groups / group * group);
  QuantizationError error;
  for (std::uint64_t first = 0; first < all && first / step < groups; first += step) {
    TRY(rows.make(
        first, std::min(group, all - first), tile, buffers,
        [](std::uint64_t, const PackedBytes&) { return Status(); }, &error));
  }
  return error.relative_rms();
}

}  // namespace

void report_quantized(SaveJob& job, const std::map<std::uint32_t, double>& errors) {
  if (!job.options.plan.quantize) {
    return;
  }
  for (std::uint32_t i = 0; i < job.plan.models.size(); ++i) {
    const auto& matrices = job.plan.models[i].matrices;
    if (!matrices) {
      continue;
    }
    const auto tensors = tensors_of(job.plan, i);
    SavedModel& report = job.report.models[i];
    for (const ChosenMatrix& chosen : matrices->matrices) {
      report.quantized.push_back(
          report_of(matrices->weights[chosen.weight], chosen, tensors, errors));
    }
    for (const GraphWeight& weight : matrices->weights) {
      if (weight.reason != FloatReason::kNone) {
        report.floats.push_back(
            {weight.name, float_reason_text(weight.reason, weight.detail), weight.bytes});
      }
    }
  }
  note_requirements(*job.options.plan.quantize, job.report);
}

Result<std::map<std::uint32_t, double>> sampled_errors(const SavePlan& plan,
                                                       const Checkpoint& checkpoint) {
  std::map<std::uint32_t, double> errors;
  IoBuffer tile;
  PackingBuffers buffers;
  for (std::uint32_t range = 0; range < plan.ranges.size(); ++range) {
    const PlannedTensor& tensor = tensor_of(plan, range);
    if (tensor.packed && !tensor.packed->scheme.kept && tensor.packed->part == MatrixPart::kCodes &&
        kind_of_source(checkpoint, tensor) != StorageKind::kMade) {
      TRY_ASSIGN(errors[range], sampled_error(tensor, checkpoint, tile, buffers));
    }
  }
  return errors;
}

}  // namespace onnx_external
