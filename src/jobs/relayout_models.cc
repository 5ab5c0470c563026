// Gives models' own weights another layout: a save without a checkpoint.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/save_job.h"
#include "mapping/name_refinement.h"
#include "mapping/slot_roles.h"
#include "onnx/graph_facts.h"
#include "onnx/open_values.h"
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

// A mapping that fills nothing: open slots stay open. Inputs that have the names of weights count
// as such, unless the options name them as the caller's.
Mapping unmapped(const GraphFacts& graph, const MappingOptions& options) {
  const NameSet user_inputs(options.inputs.begin(), options.inputs.end());
  Mapping mapping;
  mapping.options.partial = options.partial;
  for (const Slot& slot : graph.slots) {
    const bool is_input = slot.kind == SlotKind::kGraphInput;
    const bool is_missing =
        is_open(slot) || (is_input && !user_inputs.contains(slot.name) && is_left_out_weight(slot));
    mapping.slots.push_back(is_missing ? SlotVerdict::kMissing
                            : is_input ? SlotVerdict::kUserInput
                                       : SlotVerdict::kNotNeeded);
  }
  return mapping;
}

// True for graphs whose weights were left out. Small weights may all stay where they are.
bool moves_nothing(const SaveJob& job) {
  const Layout layout = job.plan.layout;
  const auto is_weight = [&](const InlineTensor& tensor) {
    return tensor.place != TensorPlace::kAttribute &&
           (layout == Layout::kInline || (tensor.length > 0 && onnx_is_floating(tensor.data_type)));
  };
  const auto has_weights = [&](const Model& model) {
    const auto& given = model.inline_tensors();
    return std::any_of(given.begin(), given.end(), is_weight);
  };
  return job.plan.tensors.empty() &&
         (layout == Layout::kLink ||
          std::none_of(job.models.begin(), job.models.end(), has_weights));
}

// Lists the values in nodes, which are only moved with an option, because they may be the weights.
Error nothing_to_move(const SaveJob& job) {
  constexpr std::uint64_t kMinBytes = 256;
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const Model& model : job.models) {
    for (const InlineTensor& tensor : model.inline_tensors()) {
      if (tensor.place == TensorPlace::kAttribute && tensor.length >= kMinBytes) {
        names.push_back(tensor.value.empty() ? tensor.name : tensor.value);
      }
    }
  }
  const std::string what =
      (job.is_of_one() ? graph_name(job.models.front()) + ": has" : "the models have") +
      " no weights to move";
  if (names.empty()) {
    return {ErrorCode::kNotFound, what + ", and no checkpoint is given"};
  }
  return error_with(ErrorCode::kNotFound,
                    what + " except values in nodes: " + quote_list(names, kShown),
                    {{RemedyOption::kAttributes, "", "also moves values of Constant nodes"}});
}

// Returns whether bytes of a tensor are produced on demand, so that they cannot be compared
// beforehand.
bool makes_any(const Checkpoint& checkpoint) {
  const std::vector<Storage>& storages = checkpoint.storages();
  return std::any_of(storages.begin(), storages.end(),
                     [](const Storage& storage) { return storage.kind == StorageKind::kMade; });
}

// Options that say how a checkpoint fills a graph would have no effect.
Status check_options(const SaveOptions& options) {
  const MappingOptions& mapping = options.mapping;
  const std::pair<const char*, bool> given[] = {
      {"dtype", options.plan.dtype.has_value() || mapping.casts == Casts::kAllow},
      {"prefix", mapping.prefix.has_value()},
      {"map", !mapping.map.empty()},
      {"rename", !mapping.renames.empty()},
      {"unmatched", mapping.unmatched != Unmatched::kStrict},
      {"keep", !mapping.keep.empty() && !mapping.keeps_rest},
      {"ignore", !mapping.ignore.empty()},
      {"learn_map", !options.learn_from.empty() || options.learn_from_open != nullptr},
  };
  for (const auto& [name, is_given] : given) {
    if (is_given) {
      return fail(ErrorCode::kInvalidArgument,
                  std::string(name) +
                      ": applies only to the weights of a checkpoint; without one, a model's own "
                      "weights keep the names and types that its graph states");
    }
  }
  return {};
}

void complete_options(SaveJob& job) {
  PlanOptions& plan = job.options.plan;
  if (plan.existing_data == ExistingData::kStay) {
    plan.existing_data = ExistingData::kMove;
  }
  if (!job.is_of_one() && plan.dedup == Dedup::kStorage && plan.layout != Layout::kLink &&
      !makes_any(*job.checkpoint)) {
    plan.dedup = Dedup::kContent;
  }
}

Result<SaveReport> save_with_layout(const SaveTarget& target, SaveInputs inputs,
                                    const SaveOptions& options) {
  TRY(check_options(options));
  TRY_ASSIGN(auto job, start_job(target, std::move(inputs), options));
  complete_options(job);
  std::vector<Mapping> mappings;
  for (const Model& model : job.models) {
    mappings.push_back(unmapped(model.facts(), options.mapping));
  }
  TRY(plan_job(job, mappings));
  if (moves_nothing(job)) {
    return fail(nothing_to_move(job));
  }
  return carry_out(std::move(job), {}, mappings);
}

}  // namespace

Result<SaveReport> relayout(const SaveTarget& target, SaveInputs inputs,
                            const SaveOptions& options) {
  const NotedPhase noted(options);
  return noted.explain(save_with_layout(target, std::move(inputs), noted.options()), target.folder);
}

Result<SaveReport> relayout_models(const SaveTarget& target, std::span<const GraphToSave> models,
                                   const SaveOptions& options) {
  return relayout(target, {{models.begin(), models.end()}}, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, const std::filesystem::path& model_path,
                                  const SaveOptions& options) {
  return relayout(target, {{{target.model_name, model_path}}}, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, const onnx::ModelProto& model,
                                  const SaveOptions& options) {
  return relayout(target, {{{target.model_name, &model}}}, options);
}

Result<SaveReport> relayout_model(const SaveTarget& target, Model model,
                                  const SaveOptions& options) {
  SaveInputs inputs;
  inputs.graphs.push_back({target.model_name, std::move(model)});
  return relayout(target, std::move(inputs), options);
}

}  // namespace onnx_external
