#include "jobs/save_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/name_map.h"
#include "base/try.h"
#include "jobs/beside_model.h"
#include "jobs/quantize_report.h"
#include "jobs/save_report.h"
#include "onnx/data_remarks.h"
#include "onnx/graph_facts.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/model_data_check.h"
#include "save/plan_checks.h"
#include "save/staging.h"
#include "save/test_data_files.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Of a model alone: the recorded inputs, fitted to the inputs that are left to the caller. A dry
// run reports the dimensions that do not fit; a save refuses them.
Result<RecordedInputs> read_test_data(const SaveJob& job) {
  RecordedInputs inputs;
  for (const fs::path& path : job.options.test_data) {
    TRY_ASSIGN(auto recording, open_recording(path, open_options(job.options, job.target.folder)));
    inputs.recordings.push_back(std::move(recording));
  }
  const auto graph =
      graph_inputs(job.models.front().proto().graph(), job.report.models.front().inputs_left());
  const auto plan = [&]() -> Status {
    TRY_ASSIGN(inputs.data, plan_test_data(graph, inputs.recordings));
    return job.options.mode == RunMode::kWrite ? check_test_data(graph, inputs.data) : Status();
  };
  if (Status planned = plan(); !planned) {
    return fail_in(graph_name(job.models.front()) + ": test data", std::move(planned).error());
  }
  return inputs;
}

// Returns the names in MappingOptions::keep that the graph has. The options of a set may name data
// of any of its graphs.
std::vector<std::string> kept_by_option(const GraphFacts& graph, const MappingOptions& options) {
  std::vector<std::string> kept;
  if (options.keep.empty() || options.keeps_rest) {
    return kept;
  }
  NameSet names;
  for (const Slot& slot : graph.slots) {
    names.insert(slot.name);
  }
  for (const ConstantTensor& constant : graph.constants) {
    names.insert(constant.name);
  }
  std::copy_if(options.keep.begin(), options.keep.end(), std::back_inserter(kept),
               [&](const std::string& name) { return names.contains(name); });
  return kept;
}

std::string failed_text(const VerifyReport& report) {
  std::string text =
      "verification failed, nothing was published: " + finding_text(report.findings.front());
  if (report.findings.size() > 1) {
    text += " (and " + std::to_string(report.findings.size() - 1) + " more findings)";
  }
  return text;
}

// How a staged save is read back; without a manifest, which each model has.
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

// Recorded inputs follow a model that is in place, once its save has unlocked the folder.
Status publish_test_data(const SaveJob& job, StagedSave published) {
  { const StagedSave done = std::move(published); }
  const WriteOptions& write = job.options.write;
  return write_test_data(job.inputs, job.target.folder,
                         {write.overwrite, write.sync, job.options.verification});
}

// Everything that the models share is read once. A graph's own data is checked by the CRC-32 that
// was taken while it was copied, which is in the manifest.
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

// The reports of the tensors of one model of the plan, which gives its texts away.
std::vector<SavedTensor> saved_tensors(SavePlan& plan,
                                       const std::map<std::size_t, Overflow>& overflows,
                                       std::uint32_t model_index) {
  std::vector<SavedTensor> saved;
  saved.reserve(plan.is_of_one() ? plan.tensors.size() : 0);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PlannedTensor& tensor = plan.tensors[i];
    if (tensor.model_index != model_index) {
      continue;
    }
    SavedTensor entry;
    if (const auto overflow = overflows.find(i); overflow != overflows.end()) {
      entry.overflow = overflow->second;
    }
    entry.key = std::move(tensor.key);
    entry.slot = std::move(tensor.name);
    entry.rule = tensor.rule;
    entry.recipe = std::move(tensor.recipe);
    if (tensor.range && plan.layout != Layout::kInline) {
      const DataRange& range = plan.ranges[*tensor.range];
      entry.file = plan.location(range.file);
      entry.offset = range.offset;
    }
    entry.length = tensor.nbytes;
    entry.data_type = tensor.data_type;
    entry.dims = std::move(tensor.dims);
    entry.packed = tensor.packed;
    saved.push_back(std::move(entry));
  }
  return saved;
}

void report_tensors(const std::map<std::size_t, Overflow>& overflows, SaveJob& job) {
  for (std::uint32_t i = 0; i < job.report.models.size(); ++i) {
    job.report.models[i].tensors = saved_tensors(job.plan, overflows, i);
  }
}

// The size of the ranges that one model refers to.
std::uint64_t bytes_of_model(const SavePlan& plan, std::uint32_t model_index) {
  std::vector<bool> counted(plan.ranges.size());
  std::uint64_t bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index == model_index && tensor.range && !counted[*tensor.range]) {
      counted[*tensor.range] = true;
      bytes += plan.ranges[*tensor.range].bytes;
    }
  }
  return bytes;
}

SavedModel report_model(const SaveJob& job, std::uint32_t model_index, const Mapping& mapping) {
  const Model& model = job.models[model_index];
  SavedModel report;
  report.model = job.target.folder / job.names[model_index];
  report.manifest = manifest_location(
      {.models = job.names, .data_dir = job.plan.data_dir, .layout = job.plan.layout},
      job.names[model_index]);
  report.kept_by_option = kept_by_option(model.facts(), job.options.mapping);
  report.left = reported_names(model, mapping, report.kept_by_option);
  report.complete = report.slots_left().empty() && report.left_old().empty();
  report.key_prefix = mapping.key_prefix;
  report.bytes = bytes_of_model(job.plan, model_index);
  report.remarks = remarks_of(model);
  return report;
}

// Fills in what the report says about the data files of a plan.
void report_data(const SavePlan& plan, SaveReport& report) {
  for (const std::size_t tensor : plan.oversized) {
    report.oversized.push_back(plan.tensors[tensor].name);
  }
  report.bytes = plan.bytes;
  for (std::size_t i = plan.written_ranges(); i < plan.ranges.size(); ++i) {
    report.linked_bytes += plan.ranges[i].bytes;
  }
}

}  // namespace

Status plan_job(SaveJob& job, const MappingKeys& keys, std::span<const Mapping> mappings) {
  WriteOptions write = job.options.write;
  if (job.options.mode == RunMode::kDryRun) {
    write.sync = Sync::kNone;
  }
  TRY_ASSIGN(job.plan, plan_models(job.models, job.names, *job.checkpoint, mappings, job.target,
                                   job.options.plan, write, job.own));
  SaveReport& report = job.report;
  report.folder = job.target.folder;
  report.keys = reported_keys(keys, mappings.front());
  report.unused_modules = mappings.front().unused_modules;
  report.notes = job.checkpoint->notes();
  report.overlaid = job.checkpoint->overlaid();
  report.derived = mappings.front().options.derived;
  report_data(job.plan, report);
  TRY_ASSIGN(const auto notes, check_model_data(job.plan, std::span<const Model>(job.models)));
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  for (std::uint32_t i = 0; i < mappings.size(); ++i) {
    report.models.push_back(report_model(job, i, mappings[i]));
    report.complete = report.complete && report.models.back().complete;
  }
  if (!job.options.test_data.empty()) {
    TRY_ASSIGN(job.inputs, read_test_data(job));
    report.test_data = job.inputs.data;
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
  TRY(check_test_data_files(job.inputs, job.target.folder, write.overwrite));
  TRY(note_sources(job.models, *job.checkpoint, write, job.plan));
  // From here on every file, offset and length is final.
  TRY_ASSIGN(auto staged,
             write_plan(job.plan, job.models, *job.checkpoint, job.target.folder, write));
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
  TRY_IN("the new model is in place, but not its test data",
         leads(write) ? publish_test_data(job, std::move(staged)) : Status());
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(report);
}

Result<SaveReport> noting_cancellation(
    const SaveTarget& target, const SaveOptions& options,
    const std::function<Result<SaveReport>(const SaveOptions&)>& save) {
  if (!options.write.progress) {
    return save(options);
  }
  std::optional<Phase> phase;
  SaveOptions noting = options;
  noting.write.progress = noting_phase(options.write.progress, phase);
  auto report = save(noting);
  if (!report && phase) {
    return fail(cancelled_in(target.folder, phase, std::move(report).error()));
  }
  return report;
}

}  // namespace onnx_external
