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
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/plan_checks.h"
#include "save/test_data_files.h"
#include "save/transaction.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

using Graphs = std::vector<GraphToSave>;

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

Status add_derived(SaveJob& job) {
  return add_derived_tensors(*job.checkpoint, job.options.mapping.derived,
                             job.options.open.max_expand);
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
  return add_derived(job);
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

// --- writing -------------------------------------------------------------------------------------

std::string failed_text(const VerifyReport& report) {
  std::string text =
      "verification failed, nothing was published: " + finding_text(report.findings.front());
  if (report.findings.size() > 1) {
    text += " (and " + std::to_string(report.findings.size() - 1) + " more findings)";
  }
  return text;
}

// Returns the options for reading a staged save back. They do not include the manifest, because
// each model has its own.
VerifyOptions verify_options(const SaveJob& job) {
  const WriteOptions& write = job.options.write;
  VerifyOptions options;
  options.threads = write.threads;
  options.progress = write.progress;
  // Spliced records took their CRC from the checkpoint's zip directory; this read proves them.
  options.compare = Compare::kRecordedCrc;
  options.open_slots = OpenSlots::kAllow;  // the mapping has decided
  // Without a sync the pages are dirty, and the kernel cannot drop them.
  options.drop_cache = write.sync == Sync::kFiles ? DropCache::kYes : DropCache::kNo;
  return options;
}

// The models in the staging folder, with the tensors that they must have.
struct StagedModels {
  std::vector<std::vector<ExpectedTensor>> expected;
  std::vector<ModelToVerify> models;
};

StagedModels staged_models(const SaveJob& job, const StagedSave& staged) {
  StagedModels found;
  const WrittenSave& written = staged.written();
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    found.expected.push_back(expected_tensors(job.plan, job.models[i], *job.checkpoint,
                                              written.range_crcs, written.inline_crcs,
                                              static_cast<std::uint32_t>(i)));
    found.models.push_back({staged.model_path(i), found.expected.back(),
                            staged.manifest_location(i),
                            job.plan.layout == Layout::kLink ? job.target.folder : fs::path()});
  }
  return found;
}

// Bytes that the models share are read once. Data from the graphs is checked by the CRC-32 in the
// manifest, which was computed while the data was copied.
Status verify_staged(const StagedModels& staged, const SaveJob& job) {
  TRY_ASSIGN(const auto reports,
             verify_models(staged.models, &*job.checkpoint, verify_options(job)));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i].ok()) {
      return fail(ErrorCode::kMismatch,
                  (job.is_of_one() ? "" : job.names[i] + ": ") + failed_text(reports[i]));
    }
  }
  return {};
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

// Publishes what was written and verified, then the recorded inputs.
Status publish(StagedSave staged, SaveJob& job) {
  const WriteOptions& write = job.options.write;
  TRY(job.options.before_publish ? job.options.before_publish() : Status());
  TRY(staged.publish());
  job.report.data_left_for = staged.kept_data().for_models;
  note_data_of_other_tools(staged.kept_data().of_other_tools, job.report);
  if (!job.inputs.recordings.empty() && leads(write)) {
    { const StagedSave done = std::move(staged); }  // unlocks the folder
    TRY_IN("the new model is in place, but not its test data",
           write_test_data(job.inputs, job.target.folder,
                           {write.overwrite, write.sync, job.options.verification}));
  }
  return {};
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
  job.report.verified = job.options.verification == Verification::kOn && leads(write);
  const StagedModels written = job.report.verified ? staged_models(job, staged) : StagedModels();
  report_save(keys, mappings, staged.written(), job);
  job.models.clear();  // makes room for those that were written, which are loaded now
  TRY(job.report.verified ? verify_staged(written, job) : Status());
  TRY(publish(std::move(staged), job));
  job.report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(job.report);
}

NotedPhase::NotedPhase(const SaveOptions& options) : options_(options) {
  options_.write.progress = noting_phase(options.write.progress, phase_);
}

Result<SaveReport> NotedPhase::explain(Result<SaveReport> report, const fs::path& folder) const {
  return report || !phase_ ? std::move(report)
                           : fail(cancelled_in(folder, phase_, std::move(report).error()));
}

}  // namespace onnx_external
