#include "jobs/save_job.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/cancellation.h"
#include "base/new_folders.h"
#include "base/parallel.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "jobs/save_report.h"
#include "mapping/graph_parts.h"
#include "mapping/verdict_lists.h"
#include "onnx/graph_facts.h"
#include "onnx_external/evidence.h"
#include "onnx_external/learn.h"
#include "save/plan_checks.h"
#include "save/test_data_files.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Graphs = std::vector<GraphToSave>;
using Paths = std::span<const fs::path>;

// Neither a path nor a model.
bool is_nothing(const GraphToSave& given) {
  const auto* const path = std::get_if<fs::path>(&given.graph);
  const auto* const proto = std::get_if<const onnx::ModelProto*>(&given.graph);
  return (path != nullptr && path->empty()) || (proto != nullptr && *proto == nullptr);
}

Status check_graphs(const Graphs& graphs) {
  return graphs.empty() || std::any_of(graphs.begin(), graphs.end(), is_nothing)
             ? Status(fail(ErrorCode::kInvalidArgument, "no graph is given"))
             : Status();
}

// Checks options that apply to a single graph only, or that must differ between several.
Status check_set_options(const SaveJob& job) {
  if (job.is_of_one()) {
    return {};
  }
  if (!job.options.test_data.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "recorded inputs belong to a single model; save that model by itself");
  }
  if (!job.options.learn_from.empty() || job.options.learn_from_open != nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "an old checkpoint belongs to a single graph; learn the map of each graph "
                "separately, then save the models together with these maps");
  }
  if (job.options.plan.layout == Layout::kInline) {
    return fail(ErrorCode::kInvalidArgument,
                "models with inline weights cannot share weights; choose a layout other than "
                "inline, or save the models one by one");
  }
  return {};
}

// Opens the output folder and chooses the data folder. A dry run without a folder only shows the
// mapping, so it reads none.
Status check_target(SaveJob& job) {
  if (job.options.mode == RunMode::kWrite && job.options.write.team == nullptr) {
    TRY_ASSIGN(job.folder, open_output_folder(job.target.folder, job.options.write.sync));
  }
  TRY_ASSIGN(job.target.data_dir,
             choose_data_dir(job.target.folder, job.names, job.target.data_dir,
                             job.options.write.overwrite, job.options.plan.written_layout(),
                             job.options.plan.data_name));
  return {};
}

// --- inputs ------------------------------------------------------------------------------------

struct LoadGraph {
  const SaveOptions& options;

  Result<Model> operator()(const fs::path& path) const {
    TRY_ASSIGN(auto model, Model::load(path));
    return (*this)(std::move(model));
  }
  Result<Model> operator()(Model model) const {
    if (!options.source_dir.empty()) {
      model.set_source_dir(options.source_dir);
    }
    return model;
  }
  Result<Model> operator()(const onnx::ModelProto* proto) const {
    return Model::from_proto(*proto,
                             options.source_dir.empty() ? fs::path(".") : options.source_dir);
  }
};

// Returns the work of loading the graphs, as the number of bytes that are copied in the same time.
std::uint64_t work_of_loading(const Graphs& graphs) {
  constexpr std::uint64_t kCopiedPerParsed = 16;
  std::uint64_t work = 0;
  for (const GraphToSave& graph : graphs) {
    if (std::holds_alternative<const onnx::ModelProto*>(graph.graph)) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    std::error_code error;
    const auto* const path = std::get_if<fs::path>(&graph.graph);
    const std::uintmax_t bytes = path == nullptr ? 0 : fs::file_size(*path, error);
    work += error ? 0 : bytes * kCopiedPerParsed;
  }
  return work;
}

// Graphs and checkpoint are independent, so they are opened at the same time. For 100,000 tensors
// this shortens a dry run by a tenth to a fifth.
Status open_inputs(SaveJob& job, SaveInputs& inputs) {
  std::vector<std::optional<Model>> models(inputs.graphs.size());
  const std::size_t tasks = models.size() + (inputs.paths.empty() ? 0 : 1);
  TRY(parallel_tasks(
      tasks, thread_count(job.options.open.threads, work_of_loading(inputs.graphs)),
      [&](std::size_t input, int) -> Status {
        if (input < models.size()) {
          TRY_ASSIGN(models[input],
                     std::visit(LoadGraph{job.options}, std::move(inputs.graphs[input].graph)));
          return {};
        }
        TRY_ASSIGN(job.checkpoint,
                   open_checkpoint(inputs.paths, open_options(job.options, job.target.folder)));
        return {};
      }));
  if (inputs.checkpoint) {
    job.checkpoint = std::move(inputs.checkpoint);
  }
  for (std::optional<Model>& model : models) {
    job.models.push_back(*std::move(model));
  }
  if (!job.checkpoint) {
    return {};
  }
  for (const Model& model : job.models) {
    list_parts_for(model.facts(), *job.checkpoint);
  }
  return add_derived_tensors(*job.checkpoint, job.options.mapping.derived,
                             job.options.open.max_expand);
}

// A model may replace an old model, but never the checkpoint that is being read.
Status check_is_no_input(const fs::path& model, const Checkpoint& checkpoint) {
  std::error_code ignored;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (!file.path.empty() &&
        fs::equivalent(model, file.path, ignored)) {  // opens nothing: it may be a device
      return fail(ErrorCode::kInvalidArgument, model.string() +
                                                   ": the model would overwrite the checkpoint; "
                                                   "choose another name or folder for the model");
    }
  }
  return {};
}

// To keep codes, there must be some.
Status check_has_codes(const SaveJob& job) {
  const auto& quantize = job.options.plan.quantize;
  if (!quantize || quantize->keep == KeepCodes::kNo) {
    return {};
  }
  for (const TensorView& tensor : job.checkpoint->tensors()) {
    if (CheckpointAccess::quantized(*job.checkpoint, tensor.storage)) {
      return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "no codes to keep, because none of the weights is quantized; choose int4 or int8, or "
              "leave out the quantization");
}

// Opens the recorded inputs, which must be those that the caller of the model supplies.
Status open_inputs_of_caller(SaveJob& job, const Mapping& mapping) {
  if (job.options.test_data.empty()) {
    return {};
  }
  const Model& model = job.models.front();
  const auto inputs = names_with({SlotVerdict::kUserInput, SlotVerdict::kUnconfirmed},
                                 left_names(model.facts(), mapping));
  TRY_ASSIGN(job.inputs,
             open_recordings(job.options.test_data, open_options(job.options, job.target.folder)));
  TRY_IN(graph_name(model) + ": test data",
         fit_recordings(graph_inputs(model.proto().graph(), inputs),
                        job.options.mode == RunMode::kWrite, job.inputs));
  job.report.test_data = job.inputs.data;
  return {};
}

// --- mapping ---------------------------------------------------------------------------------

// If all floats are converted to one type, the types of keys do not matter for the mapping. The
// plan rejects slots that state another type.
MappingOptions mapping_options(const SaveOptions& options) {
  MappingOptions mapping = options.mapping;
  mapping.casts = options.plan.dtype ? Casts::kAllow : mapping.casts;
  return mapping;
}

Result<std::vector<Mapping>> map_job(const SaveJob& job, const MappingKeys& keys) {
  const MappingOptions options = mapping_options(job.options);
  std::vector<GraphToMap> graphs;
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    const Model& model = job.models[i];
    graphs.push_back({job.names[i], &model.facts(), mapping_evidence(model, *job.checkpoint)});
  }
  const bool learns = job.options.learn_from_open != nullptr || !job.options.learn_from.empty();
  return learns ? map_by_learning(job, graphs.front(), keys, options)
                : map_graphs(graphs, keys, options);
}

Result<SaveReport> save_with_checkpoint(const SaveTarget& target, SaveInputs inputs,
                                        const SaveOptions& options) {
  TRY_ASSIGN(auto job, start_job(target, std::move(inputs), options));
  TRY_ASSIGN(const auto keys, mapping_keys(*job.checkpoint));
  auto mappings = map_job(job, keys);
  if (!mappings) {
    return job.is_of_one() ? fail_in(graph_name(job.models.front()), std::move(mappings).error())
                           : fail(std::move(mappings).error());
  }
  TRY(plan_job(job, *mappings));
  return carry_out(std::move(job), keys, *mappings);
}

}  // namespace

OpenOptions open_options(const SaveOptions& options, const fs::path& folder) {
  OpenOptions open = options.open;
  if (open.scratch_dir == OpenOptions{}.scratch_dir) {
    // Beside the output, because /tmp may be small or memory.
    open.scratch_dir = nearest_existing_folder(folder);
  }
  return open;
}

Result<SaveJob> start_job(const SaveTarget& target, SaveInputs inputs, const SaveOptions& options) {
  SaveJob job{target, options};
  for (const GraphToSave& graph : inputs.graphs) {
    job.names.push_back(graph.model_name);
  }
  if (options.mode == RunMode::kWrite && job.target.folder.empty()) {
    job.target.folder = ".";
  }
  TRY(check_graphs(inputs.graphs));
  TRY(check_set_options(job));
  TRY(check_option_rules(options.plan, options.write, options.mapping.casts));
  TRY(check_target(job));
  TRY(open_inputs(job, inputs));
  for (std::size_t i = 0; job.checkpoint && i < job.names.size(); ++i) {
    TRY(check_is_no_input(job.target.folder / job.names[i], *job.checkpoint));
  }
  if (!job.checkpoint) {
    job.checkpoint = CheckpointAccess::make_empty();
  }
  TRY(check_has_codes(job));
  const bool quantizes = job.options.plan.quantize.has_value();
  const bool has_data_in_memory =
      std::any_of(job.models.begin(), job.models.end(),
                  [](const Model& model) { return model.path().empty(); });
  if (quantizes || has_data_in_memory) {
    TRY_ASSIGN(job.own,
               add_model_data(job.models, std::move(inputs.tensors), quantizes, *job.checkpoint));
  }
  return job;
}

Status plan_job(SaveJob& job, std::span<const Mapping> mappings) {
  TRY_ASSIGN(job.plan, plan_models(job.models, job.names, *job.checkpoint, mappings, job.target,
                                   job.options.plan, job.options.write, job.own));
  TRY_ASSIGN(job.report.notes, check_model_data(job.plan, std::span<const Model>(job.models)));
  return open_inputs_of_caller(job, mappings.front());
}

Result<SaveReport> carry_out(SaveJob job, const MappingKeys& keys,
                             std::span<const Mapping> mappings) {
  const WriteOptions& write = job.options.write;
  if (job.options.mode == RunMode::kDryRun) {
    WrittenSave nothing;
    TRY_ASSIGN(nothing.quantization_errors, sampled_errors(job.plan, *job.checkpoint));
    report_save(keys, mappings, nothing, job);
    return std::move(job.report);
  }
  if (!job.inputs.recordings.empty()) {
    TRY(check_test_data_files(job.inputs, job.target.folder, write.overwrite));
  }
  TRY(note_sources(job.models, *job.checkpoint, write, job.plan));
  // From here on every file, offset and length is final.
  TRY_ASSIGN(auto staged, write_plan(job.plan, job.models, *job.checkpoint, job.target.folder,
                                     std::move(job.folder), write));
  return finish_job(std::move(job), std::move(staged), keys, mappings);
}

NotedPhase::NotedPhase(const SaveOptions& options) : options_(options) {
  options_.write.progress = noting_phase(options.write.progress, phase_);
}

Result<SaveReport> NotedPhase::explain(Result<SaveReport> report, const fs::path& folder) const {
  return report || !phase_ ? std::move(report)
                           : fail(cancelled_in(folder, phase_, std::move(report).error()));
}

// --- entry points ----------------------------------------------------------------------------

Result<SaveReport> attach(const SaveTarget& target, SaveInputs inputs, const SaveOptions& options) {
  const NotedPhase noted(options);
  return noted.explain(save_with_checkpoint(target, std::move(inputs), noted.options()),
                       target.folder);
}

Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target, Paths torch_load_paths,
                                                  std::span<const GraphToSave> graphs,
                                                  const SaveOptions& options) {
  if (torch_load_paths.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no checkpoint is given; use relayout_model() to change the layout of a model's "
                "own weights");
  }
  return attach(target, {{graphs.begin(), graphs.end()}, torch_load_paths}, options);
}

Result<SaveReport> save_graphs_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                  std::span<const GraphToSave> graphs,
                                                  const SaveOptions& options) {
  return attach(target, {{graphs.begin(), graphs.end()}, {}, std::move(checkpoint)}, options);
}

Result<std::string> map_template_text(Paths torch_load_paths, const fs::path& graph_path,
                                      const SaveOptions& options, const ErrorDetails* refusal) {
  TRY_ASSIGN(const auto model, Model::load(graph_path));
  TRY_ASSIGN(auto checkpoint, open_checkpoint(torch_load_paths, options.open));
  list_parts_for(model.facts(), checkpoint);
  TRY(add_derived_tensors(checkpoint, options.mapping.derived, options.open.max_expand));
  TRY_ASSIGN(const auto keys, mapping_keys(checkpoint));
  const MapTemplate found = map_template(model.facts(), keys, mapping_options(options), refusal);
  if (found.open.empty()) {
    return fail(ErrorCode::kNotFound, graph_path.string() + ": has no open slots");
  }
  return map_file_text(found.map, found.open, options.mapping.derived);
}

// --- one model: a set of one -------------------------------------------------------------------

Result<SaveReport> save_model_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const onnx::ModelProto& onnx_model,
                                                 const SaveOptions& options) {
  const GraphToSave graph{model_location, &onnx_model};
  return save_graphs_with_external_data({.folder = basepath, .data_dir = initializer_location},
                                        torch_load_paths, {&graph, 1}, options);
}

Result<SaveReport> save_graph_with_external_data(const fs::path& basepath,
                                                 const std::string& model_location,
                                                 const std::string& initializer_location,
                                                 std::span<const fs::path> torch_load_paths,
                                                 const fs::path& graph_path,
                                                 const SaveOptions& options) {
  const GraphToSave graph{model_location, graph_path};
  return save_graphs_with_external_data({.folder = basepath, .data_dir = initializer_location},
                                        torch_load_paths, {&graph, 1}, options);
}

Result<SaveReport> save_model_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                 Model model, const SaveOptions& options) {
  SaveInputs inputs;
  inputs.checkpoint = std::move(checkpoint);
  inputs.graphs.push_back({target.model_name, std::move(model)});
  return attach(target, std::move(inputs), options);
}

Result<SaveReport> save(const SaveRequest& request) {
  const SaveTarget target{.folder = request.folder, .data_dir = request.data_dir};
  const GraphToSave graph{request.model_name, request.graph};
  return request.checkpoint.empty() ? relayout_models(target, {&graph, 1}, request.options)
                                    : save_graphs_with_external_data(target, request.checkpoint,
                                                                     {&graph, 1}, request.options);
}

}  // namespace onnx_external
