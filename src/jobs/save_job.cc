#include "jobs/save_job.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/quantize_report.h"
#include "jobs/save_report.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/equal_bytes.h"
#include "save/link.h"
#include "save/make_plan.h"
#include "save/output_names.h"
#include "save/plan_checks.h"
#include "save/plan_sources.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/quantize_plan.h"
#include "save/test_data_files.h"
#include "verify/recorded_bytes.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Tensors that are produced on demand exist only while they are written, so Dedup::kContent cannot
// compare them beforehand.
Status check_made_tensors(const SavePlan& plan, const Checkpoint& checkpoint) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (kind_of_source(checkpoint, tensor) == StorageKind::kMade) {
      return fail(
          ErrorCode::kInvalidArgument,
          "tensor " + quote(tensor.name) +
              ": its bytes are produced once, when they are written, but finding equal bytes needs "
              "them earlier; leave out the search for equal bytes, or pass the tensor in memory");
    }
  }
  return {};
}

// The steps after the layout, when each tensor has a part: limits, links, deduplication and
// recorded CRCs.
Result<SavePlan> complete(SavePlan plan, const SourceModels& models, const Checkpoint& checkpoint,
                          const std::filesystem::path& folder, const PlanOptions& options,
                          const WriteOptions& write, const OwnWeights& own) {
  TRY(check_expansion(plan, models, options.max_expand));
  if (options.dedup == Dedup::kContent) {
    TRY(check_made_tensors(plan, checkpoint));
    TRY_ASSIGN(plan, merge_equal_bytes(std::move(plan), models, checkpoint, options, write.threads,
                                       write.progress));
  }
  TRY(note_recorded_crcs(models, plan));
  if (options.quantize) {
    TRY(quantize_plan(models, checkpoint, options, write.inputs, own, plan));
  }
  if (options.layout == Layout::kLink && options.quantize) {
    TRY_ASSIGN(plan, link_or_write(std::move(plan), models, checkpoint, options));
  }
  if (options.layout == Layout::kLink) {
    TRY_ASSIGN(plan, link_files(std::move(plan), models, checkpoint, folder));
  }
  return plan;
}

// As plan_save(), but for the checks of the options and the target, whose data folder is chosen,
// and for note_sources(). `own`: what the checkpoint has of the models' own weights; without it
// these stay in float. Requires: as many models, names and mappings.
Result<SavePlan> plan_models(std::span<const Model> models, std::span<const std::string> names,
                             const Checkpoint& checkpoint, std::span<const Mapping> mappings,
                             const SaveTarget& target, const PlanOptions& options,
                             const WriteOptions& write, const OwnWeights& own) {
  const auto name_of = [&](std::size_t i) {
    return models.size() == 1 ? graph_name(models[i]) : names[i];
  };
  for (std::size_t i = 0; i < models.size(); ++i) {
    TRY_IN(name_of(i), check_complete(models[i], mappings[i]));
  }
  TRY_ASSIGN(auto plan, make_plan(models, names, checkpoint, mappings, options, target.data_dir));
  for (std::uint32_t i = 0; i < models.size(); ++i) {
    TRY_IN(name_of(i), check_shapes(models[i], i, plan.tensors));
  }
  return complete(std::move(plan), models, checkpoint, target.folder, options, write, own);
}

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

// Bytes that the models share are read once. Data from the graphs is checked by the CRC-32 in the
// manifest, which was computed while the data was copied.
Status verify_staged(SaveJob& job, const StagedSave& staged) {
  std::vector<std::vector<ExpectedTensor>> expected;
  std::vector<ModelToVerify> models;
  for (std::size_t i = 0; i < job.models.size(); ++i) {
    expected.push_back(expected_tensors(job.plan, job.models[i], *job.checkpoint,
                                        staged.range_crcs(), staged.inline_crcs(),
                                        static_cast<std::uint32_t>(i)));
    models.push_back({staged.model_path(i), expected.back(), staged.manifest_location(i),
                      job.plan.layout == Layout::kLink ? job.target.folder : fs::path()});
  }
  job.models.clear();  // makes room for those that were written, which are loaded now
  TRY_ASSIGN(const auto reports, verify_models(models, &*job.checkpoint, verify_options(job)));
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i].ok()) {
      return fail(ErrorCode::kMismatch,
                  (job.is_of_one() ? "" : job.names[i] + ": ") + failed_text(reports[i]));
    }
  }
  return {};
}

}  // namespace

Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const SaveTarget& target, const PlanOptions& options,
                           const WriteOptions& write) {
  TRY(check_option_rules(options, write, mapping.options.casts));
  SaveTarget chosen = target;
  TRY_ASSIGN(chosen.data_dir,
             choose_data_dir(target.folder, target.model_name, target.data_dir, write.overwrite,
                             options.written_layout(), options.data_name));
  TRY_ASSIGN(auto plan, plan_models({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1},
                                    chosen, options, write, {}));
  TRY(note_sources({&model, 1}, checkpoint, write, plan));
  return plan;
}

Status plan_job(SaveJob& job, const MappingKeys& keys, std::span<const Mapping> mappings) {
  WriteOptions write = job.options.write;
  if (job.options.mode == RunMode::kDryRun) {
    write.sync = Sync::kNone;
  }
  TRY_ASSIGN(job.plan, plan_models(job.models, job.names, *job.checkpoint, mappings, job.target,
                                   job.options.plan, write, job.own));
  TRY_ASSIGN(const auto notes, check_model_data(job.plan, std::span<const Model>(job.models)));
  report_plan(keys, mappings, notes, job);
  if (!job.options.test_data.empty()) {
    const Model& model = job.models.front();
    TRY_ASSIGN(job.inputs, open_recordings(job.options.test_data,
                                           open_options(job.options, job.target.folder)));
    TRY_IN(
        graph_name(model) + ": test data",
        fit_recordings(graph_inputs(model.proto().graph(), job.report.models.front().inputs_left()),
                       job.options.mode == RunMode::kWrite, job.inputs));
    job.report.test_data = job.inputs.data;
  }
  return {};
}

Result<SaveReport> carry_out(SaveJob job) {
  const WriteOptions& write = job.options.write;
  SaveReport& report = job.report;
  for (const Model& model : job.models) {
    note_side_files(model, job.target.folder, report);
  }
  if (job.options.mode == RunMode::kDryRun) {
    TRY_ASSIGN(const auto errors, sampled_errors(job.plan, *job.checkpoint));
    report_quantized(job, errors);
    report_tensors({}, job);
    return std::move(report);
  }
  if (!job.inputs.recordings.empty()) {
    TRY(check_test_data_files(job.inputs, job.target.folder, write.overwrite));
  }
  TRY(note_sources(job.models, *job.checkpoint, write, job.plan));
  // From here on every file, offset and length is final.
  TRY_ASSIGN(auto staged, write_plan(job.plan, job.models, *job.checkpoint, job.target.folder,
                                     std::move(job.folder), write));
  report.bytes_resumed = staged.bytes_resumed();
  if (job.options.verification == Verification::kOn && leads(write)) {
    TRY(verify_staged(job, staged));
    report.verified = true;
  }
  report_quantized(job, staged.quantization_errors());
  report_tensors(staged.overflows(), job);
  TRY(job.options.before_publish ? job.options.before_publish() : Status());
  TRY(staged.publish());
  report.data_left_for = staged.data_left_for();
  note_data_of_other_tools(staged.data_of_other_tools(), report);
  if (!job.inputs.recordings.empty() && leads(write)) {
    { const StagedSave done = std::move(staged); }  // unlocks the folder
    TRY_IN("the new model is in place, but not its test data",
           write_test_data(job.inputs, job.target.folder,
                           {write.overwrite, write.sync, job.options.verification}));
  }
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(report);
}

NotedPhase::NotedPhase(const SaveOptions& options) : options_(options) {
  options_.write.progress = noting_phase(options.write.progress, phase_);
}

Result<SaveReport> NotedPhase::explain(Result<SaveReport> report, const fs::path& folder) const {
  return report || !phase_ ? std::move(report)
                           : fail(cancelled_in(folder, phase_, std::move(report).error()));
}

}  // namespace onnx_external
