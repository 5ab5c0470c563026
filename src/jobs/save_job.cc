#include "jobs/save_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/new_folders.h"
#include "base/try.h"
#include "jobs/beside_model.h"
#include "onnx/data_remarks.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/completeness.h"
#include "save/output_names.h"
#include "save/predecessors.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A save without a folder goes into the current one. A dry run without a folder only shows the
// mapping, so it reads none.
SaveTarget target_of(const SaveJob& job) {
  SaveTarget target = job.target;
  if (job.options.mode == RunMode::kWrite && target.folder.empty()) {
    target.folder = ".";
  }
  return target;
}

// The recorded inputs, fitted to the inputs of the graph that are left to the caller. A dry run
// reports the dimensions that do not fit; a save refuses them.
Result<RecordedInputs> read_test_data(const SaveJob& job, const Mapping& mapping) {
  RecordedInputs inputs;
  for (const fs::path& path : job.options.test_data) {
    TRY_ASSIGN(auto recording, open_recording(path, open_options(job.options, job.target.folder)));
    inputs.recordings.push_back(std::move(recording));
  }
  const auto graph = graph_inputs(job.model->proto().graph(), mapping.inputs_left);
  const auto plan = [&]() -> Status {
    TRY_ASSIGN(inputs.data, plan_test_data(graph, inputs.recordings));
    return job.options.mode == RunMode::kWrite ? check_test_data(graph, inputs.data) : Status();
  };
  if (Status planned = plan(); !planned) {
    return fail_in(job.graph_name() + ": test data", std::move(planned).error());
  }
  return inputs;
}

// What the caller named to be kept. A set's options name data of any of its graphs.
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

Status verify_staged(SaveJob& job, const StagedSave& staged) {
  const auto expected = expected_tensors(job.plan, *job.model, *job.checkpoint, staged.part_crcs(),
                                         staged.inline_crcs());
  job.model.reset();  // makes room for the model that was written, which is loaded now
  VerifyOptions options = verify_options(job.plan, job.options, target_of(job).folder);
  // The graph's own data is checked by the CRC-32 that was taken while it was copied.
  options.manifest = staged.manifest_location();
  TRY_ASSIGN(const auto report,
             verify_model_against(staged.model_path(), *job.checkpoint, expected, options));
  return report.ok()
             ? Status()
             : Status(fail(verification_failed(report.findings.front(), report.findings.size())));
}

}  // namespace

std::vector<SavedTensor> saved_tensors(SavePlan& plan,
                                       const std::map<std::size_t, Overflow>& overflows,
                                       std::uint32_t member) {
  std::vector<SavedTensor> saved;
  saved.reserve(plan.set.empty() ? plan.tensors.size() : 0);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    PlannedTensor& tensor = plan.tensors[i];
    if (tensor.member != member) {
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
    if (tensor.part && plan.layout != Layout::kInline) {
      const PlannedPart& part = plan.parts[*tensor.part];
      entry.file = plan.location(part.file);
      entry.offset = part.offset;
    }
    entry.length = tensor.nbytes;
    entry.data_type = tensor.data_type;
    entry.dims = std::move(tensor.dims);
    saved.push_back(std::move(entry));
  }
  return saved;
}

void report_keys(const MappingKeys& keys, const Mapping& mapping, const Checkpoint& checkpoint,
                 SaveReport& report) {
  for (const std::uint32_t key : mapping.unmatched_keys) {
    report.unmatched_keys.push_back(keys.keys[key].name);
  }
  for (const std::uint32_t key : mapping.baked_keys) {
    report.baked_keys.push_back(keys.keys[key].name);
  }
  report.notes = checkpoint.notes();
  // A learned map excludes keys whose values the graph has: these are among baked_keys.
  const std::vector<std::uint32_t>& baked = mapping.baked_keys;
  for (const std::uint32_t key : mapping.ignored_keys) {
    if (!std::binary_search(baked.begin(), baked.end(), key)) {
      report.ignored_keys.push_back(keys.keys[key].name);
    }
  }
  for (const std::uint32_t key : mapping.skipped_keys) {
    report.skipped_keys.push_back(keys.keys[key].name);
  }
  report.overlaid = checkpoint.overlaid();
  for (const TiedKey& tied : mapping.tied_keys) {
    report.tied_keys.emplace_back(keys.keys[tied.key].name, keys.keys[tied.matched_key].name);
  }
  report.unused_modules = mapping.unused_modules;
  report.derived = mapping.asked.derived;
}

void report_graph(const Model& model, const Mapping& mapping, const MappingOptions& options,
                  SaveReport& report) {
  report.inputs_left = mapping.inputs_left;
  report.initializers_kept = mapping.initializers_kept;
  report.kept_by_option = kept_by_option(model.facts(), options);
  report.slots_left = names_left_open(model, mapping);
  report.left_old = mapping.left_old;
  report.complete = report.slots_left.empty() && report.left_old.empty();
  report.alignment = mapping.alignment;
}

void report_data(const SavePlan& plan, SaveReport& report) {
  for (const std::size_t tensor : plan.oversized) {
    report.oversized.push_back(plan.tensors[tensor].name);
  }
  report.bytes = plan.bytes;
  for (std::size_t i = 0; plan.layout == Layout::kLink && i < plan.parts.size(); ++i) {
    report.linked_bytes += plan.parts[i].bytes;
  }
}

Error verification_failed(const Finding& first, std::size_t findings) {
  std::string text = "verification failed, nothing was published: " + finding_text(first);
  if (findings > 1) {
    text += " (and " + std::to_string(findings - 1) + " more findings)";
  }
  return Error{ErrorCode::kMismatch, std::move(text)};
}

VerifyOptions verify_options(const SavePlan& plan, const SaveOptions& save,
                             const fs::path& folder) {
  const WriteOptions& write = save.write;
  VerifyOptions options;
  options.threads = write.threads;
  options.progress = write.progress;
  // Spliced records took their CRC from the checkpoint's zip directory; this read proves them.
  options.compare = Compare::kRecordedCrc;
  options.open_slots = OpenSlots::kAllow;  // the mapping has decided
  if (plan.layout == Layout::kLink) {
    options.compare = Compare::kPlaces;
    options.data_folder = folder;
  }
  // Without a sync the pages are dirty, and the kernel cannot drop them.
  options.drop_cache = write.sync == Sync::kFiles ? DropCache::kYes : DropCache::kNo;
  if (write.cache == PageCache::kBypass) {
    options.drop_cache = DropCache::kBehind;
  }
  return options;
}

MappingOptions mapping_options(const SaveOptions& options) {
  MappingOptions mapping = options.mapping;
  mapping.casts = options.plan.dtype ? Casts::kAllow : mapping.casts;
  return mapping;
}

Status check_is_no_input(const fs::path& model, const Checkpoint& checkpoint) {
  std::error_code ignored;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (!file.path.empty() &&
        fs::equivalent(model, file.path, ignored)) {  // opens nothing: it may be a device
      return fail(ErrorCode::kInvalidArgument,
                  model.string() + ": is the checkpoint; give the model another name or folder");
    }
  }
  return {};
}

Result<Model> given_model(const onnx::ModelProto& proto, const SaveOptions& options) {
  return Model::from_proto(proto, options.source_dir.empty() ? fs::path(".") : options.source_dir);
}

Result<Model> given_model(const fs::path& path, const SaveOptions& options) {
  TRY_ASSIGN(auto model, Model::load(path));
  return given_model(std::move(model), options);
}

Result<Model> given_model(Model model, const SaveOptions& options) {
  if (!options.source_dir.empty()) {
    model.set_source_dir(options.source_dir);
  }
  return model;
}

OpenOptions open_options(const SaveOptions& options, const fs::path& folder) {
  OpenOptions open = options.open;
  if (open.scratch_dir == OpenOptions{}.scratch_dir) {
    // Beside the output, because /tmp may be small or memory.
    open.scratch_dir = nearest_existing_folder(folder);
  }
  return open;
}

Status check_target(const SaveJob& job) {
  const SaveTarget target = target_of(job);
  if (job.options.mode == RunMode::kWrite) {
    finish_sets(target.folder, job.options.write.sync);
  }
  if (!target.folder.empty()) {
    TRY(choose_data_dir(target.folder, target.model_name, target.data_dir,
                        job.options.write.overwrite, job.options.plan.layout,
                        job.options.plan.data_name));
  }
  return {};
}

Status plan_job(SaveJob& job, const MappingKeys& keys, const Mapping& mapping) {
  WriteOptions write = job.options.write;
  if (job.options.mode == RunMode::kDryRun) {
    write.sync = Sync::kNone;
  }
  TRY_ASSIGN(job.plan, plan_save(*job.model, *job.checkpoint, mapping, target_of(job),
                                 job.options.plan, write));
  job.report.model = job.target.folder / job.plan.model_name;
  report_keys(keys, mapping, *job.checkpoint, job.report);
  report_graph(*job.model, mapping, job.options.mapping, job.report);
  job.report.remarks = remarks_of(*job.model);
  report_data(job.plan, job.report);
  TRY_ASSIGN(job.inputs, read_test_data(job, mapping));
  job.report.test_data = job.inputs.data;
  return {};
}

Result<SaveReport> carry_out(SaveJob job) {
  const WriteOptions& write = job.options.write;
  note_side_files(*job.model, job.target.folder, job.report);
  if (job.options.mode == RunMode::kDryRun) {
    job.report.tensors = saved_tensors(job.plan);
    return std::move(job.report);
  }
  ReplacedData old_data(job.target.folder, {&job.target.model_name, 1});
  // From here on every file, offset and length is final.
  TRY_ASSIGN(auto staged, write_plan(job.plan, *job.model, *job.checkpoint, job.target.folder,
                                     write, &job.inputs));
  job.report.bytes_resumed = staged.bytes_resumed();
  const bool leads = write.team == nullptr || write.team->rank() == 0;
  if (job.options.verification == Verification::kOn && leads) {
    TRY(verify_staged(job, staged));
    job.report.verified = true;
  }
  job.report.tensors = saved_tensors(job.plan, staged.overflows());
  old_data.prepare({&job.report, 1}, job.report);
  TRY(job.options.before_publish ? job.options.before_publish() : Status());
  TRY(staged.publish());
  job.report.data_left_for = staged.data_left_for();
  old_data.note(job.report);
  job.report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(job.report);
}

}  // namespace onnx_external
