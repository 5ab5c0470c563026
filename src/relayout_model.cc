// Gives a model's own weights another layout: a save without a checkpoint.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx_external/save_external.h"
#include "save_job.h"

namespace onnx_external {

Mapping unmapped(const GraphFacts& graph) {
  Mapping mapping;
  for (const Slot& slot : graph.slots) {
    if (slot.kind == SlotKind::kGraphInput) {
      mapping.inputs_left.push_back(slot.name);
    } else if (slot.kind == SlotKind::kUndefinedName) {
      mapping.slots_left.push_back(slot.name);
    }
  }
  return mapping;
}

namespace {

// True for a graph whose weights were left out.
bool moves_nothing(const SavePlan& plan, const Model& model) {
  const auto& given = model.inline_tensors();
  const bool is_whole = plan.layout == Layout::kInline &&
                        std::any_of(given.begin(), given.end(), [](const InlineTensor& tensor) {
                          return tensor.place != TensorPlace::kAttribute;
                        });
  return plan.tensors.empty() && !is_whole;
}

template <typename Given>
Result<SaveReport> relayout(const SaveTarget& target, Given&& given, const SaveOptions& options) {
  SaveJob job{target, options};
  if (options.plan.given == GivenTensors::kStay) {
    job.options.plan.given = GivenTensors::kMove;
  }
  TRY(check_target(job));
  TRY_ASSIGN(job.model, given_model(std::forward<Given>(given), options));
  job.checkpoint = with_tensors_of(*job.model, CheckpointAccess::make_empty());
  TRY(plan_job(job, {}, unmapped(job.model->facts())));
  if (moves_nothing(job.plan, *job.model)) {
    return fail(ErrorCode::kNotFound,
                job.graph_name() + ": has no weights to move, and no checkpoint is given");
  }
  return carry_out(std::move(job));
}

}  // namespace

Result<SaveReport> relayout_model(const SaveTarget& target, const std::filesystem::path& model_path,
                                  const SaveOptions& options) {
  return relayout(target, model_path, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, const onnx::ModelProto& model,
                                  const SaveOptions& options) {
  return relayout(target, model, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, Model model,
                                  const SaveOptions& options) {
  return relayout(target, std::move(model), options);
}

}  // namespace onnx_external
