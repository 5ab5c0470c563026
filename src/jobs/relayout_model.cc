// Gives a model's own weights another layout: a save without a checkpoint.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "jobs/save_job.h"
#include "mapping/name_refinement.h"
#include "mapping/slot_roles.h"
#include "onnx/open_places.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

namespace {

// True for an input that the older exporter makes of a parameter where it leaves weights out. An
// argument of a model has no such name.
bool is_left_out_weight(const Slot& slot) {
  return slot.origin != SlotOrigin::kUserInput && slot.consumer_count > 0 &&
         onnx_is_floating(slot.elem_type) && slot.shape && !has_symbolic_dimension(slot) &&
         slot.name.find('.') != std::string::npos && is_parameter_name(slot.name);
}

}  // namespace

Mapping unmapped(const GraphFacts& graph, const MappingOptions& options) {
  const NameSet callers(options.inputs.begin(), options.inputs.end());
  Mapping mapping;
  mapping.asked.partial = options.partial;
  for (const Slot& slot : graph.slots) {
    const bool is_input = slot.kind == SlotKind::kGraphInput;
    if (is_open(slot) || (is_input && !callers.contains(slot.name) && is_left_out_weight(slot))) {
      mapping.slots_left.push_back(slot.name);
    } else if (is_input) {
      mapping.inputs_left.push_back(slot.name);
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

// Values of nodes, which stay where they are without an option, are named: they may be the weights.
Error nothing_to_move(const SaveJob& job) {
  constexpr std::uint64_t kMinBytes = 256;
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const InlineTensor& tensor : job.model->inline_tensors()) {
    if (tensor.place == TensorPlace::kAttribute && tensor.length >= kMinBytes) {
      names.push_back(tensor.value.empty() ? tensor.name : tensor.value);
    }
  }
  const std::string what = job.graph_name() + ": has no weights to move";
  if (names.empty()) {
    return {ErrorCode::kNotFound, what + ", and no checkpoint is given"};
  }
  return error_with(ErrorCode::kNotFound,
                    what + " but values of nodes: " + quote_list(names, kShown),
                    {{"attributes", "", "moves values of Constant nodes, too"}});
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
  TRY(plan_job(job, {}, unmapped(job.model->facts(), options.mapping)));
  if (moves_nothing(job.plan, *job.model)) {
    return fail(nothing_to_move(job));
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
