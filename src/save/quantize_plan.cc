#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/graph_facts.h"
#include "onnx/matrix_choice.h"
#include "save/kept_rows.h"
#include "save/layout.h"
#include "save/make_plan.h"
#include "save/packed_json.h"

namespace onnx_external {
namespace {

// Returns what the save stores in each slot of a model.
std::vector<std::optional<StoredSlot>> stored_slots(const SavePlan& plan, const Model& model,
                                                    std::uint32_t model_index,
                                                    const Checkpoint& checkpoint) {
  std::vector<std::optional<StoredSlot>> stored(model.facts().slots.size());
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index == model_index && tensor.slot != kNoSlot) {
      stored[tensor.slot] =
          StoredSlot{tensor.data_type, checkpoint.tensors()[tensor.source_index].shape,
                     with_cast(tensor.recipe, false), tensor.key};
    }
  }
  return stored;
}

// Identifies a weight in a model: by its slot, or by where the model stores it.
enum class WeightPlace : std::uint8_t { kSlot, kExternal, kInline };
using WeightId = std::pair<WeightPlace, std::size_t>;

WeightId id_of(const GraphWeight& weight) {
  if (weight.is_stored) {
    return {WeightPlace::kSlot, weight.slot};
  }
  return weight.external_tensor ? WeightId(WeightPlace::kExternal, *weight.external_tensor)
                                : WeightId(WeightPlace::kInline, weight.inline_tensor.value_or(0));
}

WeightId id_of(const PlannedTensor& tensor) {
  if (tensor.existing_index) {
    return {WeightPlace::kExternal, *tensor.existing_index};
  }
  switch (tensor.source) {
    case TensorSource::kModelExternal:
      return {WeightPlace::kExternal, tensor.source_index};
    case TensorSource::kModelInline:
      return {WeightPlace::kInline, tensor.source_index};
    case TensorSource::kCheckpoint:
      break;
  }
  return {WeightPlace::kSlot, tensor.slot};
}

MatrixPart part_of(MatrixTensor::Part part) {
  switch (part) {
    case MatrixTensor::Part::kScales:
      return MatrixPart::kScales;
    case MatrixTensor::Part::kZeroPoints:
      return MatrixPart::kZeroPoints;
    case MatrixTensor::Part::kTerms:
      return MatrixPart::kZeroPoints;  // in the place of these
    default:
      return MatrixPart::kCodes;  // a table has the same bytes
  }
}

// Builds the new lists of tensors and ranges.
class PlanQuantizer {
 public:
  PlanQuantizer(const Checkpoint& checkpoint, const OwnWeights& own, const SavePlan& plan)
      : checkpoint_(checkpoint), own_(own), plan_(plan), kept_ranges_(plan.ranges.size()) {}

  // Marks the weights of a model whose data no save can quantize.
  [[nodiscard]] bool has_data(std::uint32_t model, const GraphWeight& weight) const {
    return weight.is_stored || own_tensor(model, id_of(weight)).has_value();
  }

  Status add_model(std::uint32_t model, const MatrixPlan& matrices) {
    std::map<WeightId, std::vector<const ChosenMatrix*>> chosen;
    for (const ChosenMatrix& matrix : matrices.matrices) {
      chosen[id_of(matrices.weights[matrix.weight])].push_back(&matrix);
    }
    for (const PlannedTensor& tensor : plan_.tensors) {
      if (tensor.model_index != model) {
        continue;
      }
      if (tensor.source == TensorSource::kModelInline &&
          std::binary_search(matrices.unread_inline.begin(), matrices.unread_inline.end(),
                             tensor.source_index)) {
        continue;  // it goes with the nodes that read it
      }
      const auto found = tensor.slot == kNoSlot && tensor.source == TensorSource::kCheckpoint &&
                                 !tensor.existing_index
                             ? chosen.end()  // kept beside the graph's own
                             : chosen.find(id_of(tensor));
      if (found == chosen.end()) {
        keep(tensor);
        continue;
      }
      for (const ChosenMatrix* matrix : found->second) {
        TRY_IN("tensor " + quote(tensor.name), add_matrix(tensor, *matrix, matrices));
      }
      chosen.erase(found);
    }
    for (const auto& [id, of_weight] : chosen) {  // held by the model, which does not move it
      for (const ChosenMatrix* matrix : of_weight) {
        PlannedTensor tensor;
        tensor.model_index = model;
        tensor.name = matrices.weights[matrix->weight].name;
        tensor.source = id.first == WeightPlace::kExternal ? TensorSource::kModelExternal
                                                           : TensorSource::kModelInline;
        tensor.source_index = id.second;
        TRY_IN("tensor " + quote(tensor.name), add_matrix(tensor, *matrix, matrices));
      }
    }
    return {};
  }

  void finish(SavePlan& plan) && {
    plan.tensors = std::move(tensors_);
    plan.ranges = std::move(ranges_);
  }

 private:
  [[nodiscard]] std::optional<std::size_t> own_tensor(std::uint32_t model,
                                                      const WeightId& id) const {
    if (id.first == WeightPlace::kSlot || model >= own_.size()) {
      return std::nullopt;
    }
    const OwnData kind = id.first == WeightPlace::kExternal ? OwnData::kExternal : OwnData::kInline;
    const auto found = own_[model].find({kind, id.second});
    return found == own_[model].end() ? std::nullopt : std::optional(found->second);
  }

  void keep(PlannedTensor tensor) {
    if (tensor.range) {
      std::optional<std::uint32_t>& range = kept_ranges_[*tensor.range];
      if (!range) {
        range = static_cast<std::uint32_t>(ranges_.size());
        ranges_.push_back({.bytes = tensor.nbytes, .source_tensor = tensors_.size()});
      }
      tensor.range = range;
    }
    tensors_.push_back(std::move(tensor));
  }

  Status add_matrix(const PlannedTensor& weight, const ChosenMatrix& chosen,
                    const MatrixPlan& matrices) {
    const Matrix& matrix = matrices.matrix_of(chosen);
    PlannedTensor part = weight;
    if (const auto own = own_tensor(weight.model_index, id_of(weight))) {
      TRY_ASSIGN(part.source_index, CheckpointAccess::given_tensor(checkpoint_, *own));
      part.source = TensorSource::kCheckpoint;
      part.existing_index.reset();
    }
    const TensorView& view = checkpoint_.tensors()[part.source_index];
    part.slot = kNoSlot;
    part.recorded_crc.reset();
    part.cast_to = packing_cast(view.dtype);
    part.recipe = with_cast(matrix.rows, part.cast_to.has_value());
    TRY(apply_recipe(part.recipe, view));
    const std::uint32_t head = ranges_of(weight, part, chosen.scheme, matrix);
    for (const MatrixTensor& tensor : chosen.tensors) {
      part.name = tensor.name;
      part.data_type = tensor.data_type;
      part.dims = tensor.dims;
      part.packed =
          PackedTensor{chosen.scheme, part_of(tensor.part), static_cast<std::uint64_t>(matrix.n),
                       static_cast<std::uint64_t>(matrix.k)};
      part.nbytes = packed_bytes(*part.packed);
      auto range = head + static_cast<std::uint32_t>(part.packed->part);
      if (plan_.layout == Layout::kInline && ranges_[range].bytes > 0) {
        range = static_cast<std::uint32_t>(ranges_.size());  // a table beside its codes
        ranges_.emplace_back();
      }
      part.range = range;
      if (ranges_[range].bytes == 0) {  // the first tensor with these bytes
        ranges_[range] = {.bytes = part.nbytes, .source_tensor = tensors_.size()};
      }
      tensors_.push_back(part);
    }
    return {};
  }

  // The first of the ranges for the parts of a matrix: new ones, or those of the same matrix.
  std::uint32_t ranges_of(const PlannedTensor& weight, const PlannedTensor& rows,
                          const Scheme& scheme, const Matrix& matrix) {
    const auto next = static_cast<std::uint32_t>(ranges_.size());
    std::uint32_t head = next;
    if (weight.range && plan_.layout != Layout::kInline) {
      head = packed_ranges_
                 .emplace(std::tuple(*weight.range, recipe_text(rows.recipe), scheme_text(scheme),
                                     matrix.n),
                          next)
                 .first->second;
    }
    if (head == next) {
      const bool has_third = scheme.zero_points || scheme.terms;
      ranges_.resize(ranges_.size() + (has_third ? kMatrixParts : kMatrixParts - 1));
    }
    return head;
  }

  const Checkpoint& checkpoint_;
  const OwnWeights& own_;
  const SavePlan& plan_;
  std::vector<PlannedTensor> tensors_;
  std::vector<DataRange> ranges_;
  std::vector<std::optional<std::uint32_t>> kept_ranges_;  // by the range before
  std::map<std::tuple<std::uint32_t, std::string, std::string, std::int64_t>, std::uint32_t>
      packed_ranges_;  // of range before, rows and scheme: the range of the codes
};

// Asks the checkpoint how the matrices of a model are kept.
KeepMatrix keep_from(const Checkpoint& checkpoint, const SavePlan& plan, std::uint32_t model) {
  std::map<std::uint32_t, std::size_t> sources;  // by slot
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index == model && tensor.slot != kNoSlot) {
      sources.emplace(tensor.slot, tensor.source_index);
    }
  }
  return [&checkpoint, sources = std::move(sources)](
             const GraphWeight& weight, const Matrix& matrix) -> Result<std::optional<KeptMatrix>> {
    const auto source = sources.find(weight.slot);
    if (!weight.is_stored || source == sources.end()) {
      return std::nullopt;
    }
    TRY_ASSIGN(const auto view, apply_recipe(matrix.rows, checkpoint.tensors()[source->second]));
    TRY_ASSIGN(const auto rows,
               KeptRows::of(checkpoint, view, static_cast<std::uint64_t>(matrix.k),
                            dtype_from_onnx(matrix.data_type).value_or(DType::kFloat32)));
    return rows ? std::optional(KeptMatrix{rows->scheme(), rows->inputs()}) : std::nullopt;
  };
}

}  // namespace

Status quantize_plan(const SourceModels& models, const Checkpoint& checkpoint,
                     const PlanOptions& options, MatchedInputs inputs, const OwnWeights& own,
                     SavePlan& plan) {
  PlanQuantizer quantizer(checkpoint, own, plan);
  std::vector<const MatrixPlan*> chosen;
  bool any = false;
  for (std::uint32_t i = 0; i < plan.models.size(); ++i) {
    const Model& model = models.all()[i];
    const auto stored = stored_slots(plan, model, i, checkpoint);
    TRY_ASSIGN(auto weights, find_matrices(model, stored, inputs));
    std::erase_if(weights,
                  [&](const GraphWeight& weight) { return !quantizer.has_data(i, weight); });
    TRY_ASSIGN(auto matrices, choose_matrices(model, std::move(weights), *options.quantize,
                                              keep_from(checkpoint, plan, i)));
    any = any || !matrices.matrices.empty();
    TRY(quantizer.add_model(i, matrices));
    plan.models[i].matrices = std::make_shared<const MatrixPlan>(std::move(matrices));
    chosen.push_back(plan.models[i].matrices.get());
  }
  if (!any && options.quantize->keep == KeepCodes::kNo) {
    return nothing_to_quantize(*options.quantize);
  }
  TRY(check_patterns(*options.quantize, chosen));
  std::move(quantizer).finish(plan);
  return lay_out(plan, options);
}

}  // namespace onnx_external
