// Saves several models that share their data files.
#include "jobs/save_set.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "jobs/beside_model.h"
#include "jobs/save_job.h"
#include "onnx/data_remarks.h"
#include "onnx_external/evidence.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "save/output_names.h"
#include "save/predecessors.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Graphs = std::span<const GraphToSave>;
using Paths = std::span<const fs::path>;

// One save of a set: its inputs, its plan and its report.
struct SetJob {
  SaveTarget target;  // without a model's name
  SaveOptions options;
  std::vector<std::string> names = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<Model> models = {};
  std::optional<Checkpoint> checkpoint = {};
  SavePlan plan = {};
  SetReport report = {};
};

// --- inputs ------------------------------------------------------------------------------------

Status check_options(const SetJob& job) {
  if (job.names.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no graph is given");
  }
  if (!job.options.test_data.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "recorded inputs are for one model; save that one alone with them");
  }
  if (!job.options.learn_from.empty() || job.options.learn_from_open != nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "what an old checkpoint tells is for one graph; learn the map of each graph alone, "
                "and save the set with these maps");
  }
  if (job.options.plan.layout == Layout::kInline) {
    return fail(ErrorCode::kInvalidArgument,
                "models that hold their weights share none: choose another layout than inline, or "
                "save them one by one");
  }
  return check_set_names(job.names, job.target.data_dir);
}

// A save without a folder goes into the current one. A dry run without a folder reads none.
Status check_set_target(SetJob& job) {
  if (job.options.mode == RunMode::kWrite && job.target.folder.empty()) {
    job.target.folder = ".";
  }
  if (job.options.mode == RunMode::kWrite) {
    finish_sets(job.target.folder, job.options.write.sync);
  }
  if (!job.target.folder.empty()) {
    TRY(choose_set_data_dir(job.target.folder, job.names, job.target.data_dir,
                            job.options.write.overwrite, job.options.plan.layout,
                            job.options.plan.data_name));
  }
  return {};
}

Result<Model> load_graph(const GraphToSave& graph, const SaveOptions& options) {
  const auto* const path = std::get_if<fs::path>(&graph.graph);
  return path != nullptr ? given_model(*path, options)
                         : given_model(std::get<Model>(graph.graph), options);
}

// Graphs and checkpoint are opened at the same time.
Status open_set(SetJob& job, Graphs graphs, Paths paths) {
  std::vector<std::optional<Model>> models(graphs.size());
  TRY(parallel_tasks(graphs.size() + 1, thread_count(job.options.open.threads),
                     [&](std::size_t input, int) -> Status {
                       if (input < graphs.size()) {
                         TRY_ASSIGN(models[input], load_graph(graphs[input], job.options));
                       } else if (!paths.empty()) {
                         TRY_ASSIGN(
                             job.checkpoint,
                             open_checkpoint(paths, open_options(job.options, job.target.folder)));
                       }
                       return {};
                     }));
  for (std::optional<Model>& model : models) {
    job.models.push_back(*std::move(model));
  }
  return {};
}

// Completes the checkpoint by what options and models bring along.
Status complete_checkpoint(SetJob& job) {
  if (job.checkpoint) {
    TRY(add_derived_tensors(*job.checkpoint, job.options.mapping.derived,
                            job.options.open.max_expand));
  } else {
    job.checkpoint = CheckpointAccess::make_empty();
  }
  job.checkpoint = with_tensors_of(job.models, *std::move(job.checkpoint));
  for (const std::string& name : job.names) {
    TRY(check_is_no_input(job.target.folder / name, *job.checkpoint));
  }
  return {};
}

// What a job reads: `paths`, or a checkpoint that is ready.
struct SetInputs {
  Graphs graphs;
  Paths paths = {};
  std::optional<Checkpoint> checkpoint = {};
};

Result<SetJob> start_job(const SaveTarget& target, SetInputs inputs, const SaveOptions& options) {
  SetJob job{target, options};
  for (const GraphToSave& graph : inputs.graphs) {
    job.names.push_back(graph.model_name);
  }
  TRY(check_options(job));
  TRY(check_set_target(job));
  job.checkpoint = std::move(inputs.checkpoint);
  TRY(open_set(job, inputs.graphs, inputs.paths));
  TRY(complete_checkpoint(job));
  return job;
}

// --- plan --------------------------------------------------------------------------------------

// The size of the ranges that one model refers to.
std::uint64_t bytes_of_model(const SavePlan& plan, std::uint32_t member) {
  std::set<std::uint32_t> parts;
  std::uint64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.member == member && tensor.part && parts.insert(*tensor.part).second) {
      bytes += plan.parts[*tensor.part].bytes;
    }
  }
  return bytes;
}

Status plan_set_job(SetJob& job, const MappingKeys& keys, std::span<const Mapping> mappings) {
  WriteOptions write = job.options.write;
  if (job.options.mode == RunMode::kDryRun) {
    write.sync = Sync::kNone;
  }
  TRY_ASSIGN(job.plan, plan_set(job.models, job.names, *job.checkpoint, mappings, job.target,
                                job.options.plan, write));
  SaveReport& shared = job.report.shared;
  shared.model = job.target.folder;
  report_keys(keys, mappings.front(), *job.checkpoint, shared);
  report_data(job.plan, shared);
  for (std::uint32_t i = 0; i < mappings.size(); ++i) {
    SaveReport& report = job.report.models.emplace_back();
    report.model = job.target.folder / job.names[i];
    report.bytes = bytes_of_model(job.plan, i);
    report_graph(job.models[i], mappings[i], job.options.mapping, report);
    report.remarks = remarks_of(job.models[i]);
    shared.complete = shared.complete && report.complete;
  }
  return {};
}

Status map_and_plan(SetJob& job) {
  TRY_ASSIGN(const auto keys, mapping_keys(*job.checkpoint));
  std::vector<GraphToMap> graphs;
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    graphs.push_back(
        {job.names[i], &job.models[i].facts(), mapping_evidence(job.models[i], *job.checkpoint)});
  }
  TRY_ASSIGN(const auto mappings, map_graphs(graphs, keys, mapping_options(job.options)));
  return plan_set_job(job, keys, mappings);
}

// --- work --------------------------------------------------------------------------------------

// Everything that the models share is read once.
Status verify_staged_set(SetJob& job, const StagedSave& staged) {
  std::vector<std::vector<ExpectedTensor>> expected;
  std::vector<ModelToVerify> models;
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    expected.push_back(expected_tensors(job.plan, job.models[i], *job.checkpoint,
                                        staged.part_crcs(), staged.inline_crcs(),
                                        static_cast<std::uint32_t>(i)));
    models.push_back({staged.model_path(i), expected.back(), staged.manifest_location(i)});
  }
  job.models.clear();  // makes room for those that were written, which are loaded now
  TRY_ASSIGN(const auto reports,
             verify_models(models, &*job.checkpoint,
                           verify_options(job.plan, job.options, job.target.folder)));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i].ok()) {
      return fail_in(job.names[i],
                     verification_failed(reports[i].findings.front(), reports[i].findings.size()));
    }
  }
  return {};
}

void report_tensors(const std::map<std::size_t, Overflow>& overflows, SetJob& job) {
  for (std::uint32_t i = 0; i < job.report.models.size(); ++i) {
    job.report.models[i].tensors = saved_tensors(job.plan, overflows, i);
  }
}

Result<SetReport> carry_out_set(SetJob job) {
  const WriteOptions& write = job.options.write;
  SaveReport& shared = job.report.shared;
  for (const Model& model : job.models) {
    note_side_files(model, job.target.folder, shared);
  }
  if (job.options.mode == RunMode::kDryRun) {
    report_tensors({}, job);
    return std::move(job.report);
  }
  ReplacedData old_data(job.target.folder, job.names);
  TRY_ASSIGN(auto staged,
             write_set_plan(job.plan, job.models, *job.checkpoint, job.target.folder, write));
  shared.bytes_resumed = staged.bytes_resumed();
  const bool leads = write.team == nullptr || write.team->rank() == 0;
  if (job.options.verification == Verification::kOn && leads) {
    TRY(verify_staged_set(job, staged));
    shared.verified = true;
    for (SaveReport& report : job.report.models) {
      report.verified = true;
    }
  }
  report_tensors(staged.overflows(), job);
  old_data.prepare(job.report.models, shared);
  TRY(job.options.before_publish ? job.options.before_publish() : Status());
  TRY(staged.publish());
  shared.data_left_for = staged.data_left_for();
  old_data.note(shared);
  shared.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(job.report);
}

// Whether the bytes of a tensor are made on demand, so that they cannot be compared before.
bool makes_any(const Checkpoint& checkpoint) {
  const std::vector<Storage>& storages = checkpoint.storages();
  return std::any_of(storages.begin(), storages.end(),
                     [](const Storage& storage) { return storage.kind == StorageKind::kMade; });
}

}  // namespace

Result<SetReport> save_graphs_with_external_data(const fs::path& basepath,
                                                 const std::string& initializer_location,
                                                 Graphs graphs, Paths torch_load_paths,
                                                 const SaveOptions& options) {
  if (torch_load_paths.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "no checkpoint is given; relayout_models() gives models' own weights a layout");
  }
  TRY_ASSIGN(auto job, start_job({.folder = basepath, .data_dir = initializer_location},
                                 {graphs, torch_load_paths}, options));
  TRY(map_and_plan(job));
  return carry_out_set(std::move(job));
}

Result<SetReport> save_graphs_with_external_data(const SaveTarget& target, Checkpoint checkpoint,
                                                 Graphs graphs, const SaveOptions& options) {
  TRY_ASSIGN(auto job, start_job(target, {graphs, {}, std::move(checkpoint)}, options));
  TRY(map_and_plan(job));
  return carry_out_set(std::move(job));
}

Result<SetReport> relayout_models(const fs::path& basepath, const std::string& initializer_location,
                                  Graphs models, const SaveOptions& options) {
  TRY_ASSIGN(auto job,
             start_job({.folder = basepath, .data_dir = initializer_location}, {models}, options));
  PlanOptions& plan = job.options.plan;
  if (plan.given == GivenTensors::kStay) {
    plan.given = GivenTensors::kMove;
  }
  if (plan.dedup == Dedup::kStorage && plan.layout != Layout::kLink &&
      !makes_any(*job.checkpoint)) {
    plan.dedup = Dedup::kContent;
  }
  std::vector<Mapping> mappings;
  for (const Model& model : job.models) {
    mappings.push_back(unmapped(model.facts(), options.mapping));
  }
  TRY(plan_set_job(job, {}, mappings));
  if (job.plan.tensors.empty()) {
    return fail(ErrorCode::kNotFound,
                "the models have no weights to move, and no checkpoint is given");
  }
  return carry_out_set(std::move(job));
}

}  // namespace onnx_external
