// Reads back what a save has written, publishes it, and completes the report.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "jobs/save_job.h"
#include "jobs/save_report.h"
#include "onnx_external/verify.h"
#include "onnx_external/writer.h"
#include "save/test_data_files.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Returns whether this process verifies and publishes. In a team, only the first process does this.
bool leads(const WriteOptions& options) {
  return options.team == nullptr || options.team->rank == 0;
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

Result<SaveReport> finish_job(SaveJob job, StagedSave staged, const MappingKeys& keys,
                              std::span<const Mapping> mappings) {
  job.report.verified = job.options.verification == Verification::kOn && leads(job.options.write);
  const StagedModels written = job.report.verified ? staged_models(job, staged) : StagedModels();
  report_save(keys, mappings, staged.written(), job);
  job.models.clear();  // makes room for those that were written, which are loaded now
  TRY(job.report.verified ? verify_staged(written, job) : Status());
  TRY(publish(std::move(staged), job));
  job.report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - job.start).count();
  return std::move(job.report);
}

}  // namespace onnx_external
