#include "onnx_external/verify.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "base/progress_meter.h"
#include "base/try.h"
#include "verify/model_file.h"
#include "verify/model_verifier.h"
#include "verify/range_check.h"
#include "verify/range_plan.h"

namespace onnx_external {
namespace {

// Models whose data is in one folder: shared ranges are read once.
Status check_data(std::span<ModelVerifier* const> verifiers, const Checkpoint* checkpoint,
                  const VerifyOptions& options) {
  RangePlan plan(checkpoint);
  std::uint64_t inline_bytes = 0;
  for (std::size_t i = 0; i < verifiers.size(); ++i) {
    verifiers[i]->plan_checks(i, plan);
    inline_bytes += verifiers[i]->inline_bytes();
  }
  ProgressMeter meter(options.progress);
  meter.begin(Phase::kVerify, plan.bytes() + inline_bytes);
  TRY_ASSIGN(const auto answers, check_ranges(verifiers.front()->data_folder(), plan.checks(),
                                              checkpoint, options, meter));
  FileSha1s sha1s;
  for (ModelVerifier* const verifier : verifiers) {
    TRY(verifier->check_rest(answers, sha1s, meter));
  }
  TRY(meter.finish());
  return checkpoint == nullptr ? Status() : checkpoint->check_unchanged();
}

// The models that were read, and the report of each.
struct Verified {
  std::vector<ModelFile> models;
  std::vector<VerifyReport> reports;
};

Result<Verified> verify_once(std::span<const ModelToVerify> models, const Checkpoint* checkpoint,
                             const VerifyOptions& options) {
  Verified verified;
  verified.models.reserve(models.size());  // the verifiers refer to them
  std::deque<ModelVerifier> verifiers;
  std::map<std::filesystem::path, std::vector<ModelVerifier*>> by_folder;
  for (const ModelToVerify& model : models) {
    TRY_ASSIGN(auto file, read_model_file(model.path, options.drop_cache));
    verified.models.push_back(std::move(file));
    ModelVerifier& verifier = verifiers.emplace_back(verified.models.back(), checkpoint, options);
    TRY(verifier.prepare(model));
    by_folder[verifier.data_folder()].push_back(&verifier);
  }
  for (const auto& [folder, of_folder] : by_folder) {
    TRY(check_data(of_folder, checkpoint, options));
  }
  for (ModelVerifier& verifier : verifiers) {
    verified.reports.push_back(verifier.collect());
  }
  return verified;
}

// True if a model with findings has been replaced meanwhile.
bool was_replaced(std::span<const ModelToVerify> models, const Verified& verified) {
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (!verified.reports[i].ok() && !is_current(models[i].path, verified.models[i])) {
      return true;
    }
  }
  return false;
}

Result<VerifyReport> verify_one(ModelToVerify model, const Checkpoint* checkpoint,
                                const VerifyOptions& options) {
  TRY_ASSIGN(model.path, find_model(model.path));
  model.manifest = options.manifest;
  TRY_ASSIGN(auto reports, verify_models({&model, 1}, checkpoint, options));
  return std::move(reports.front());
}

}  // namespace

Result<std::vector<VerifyReport>> verify_models(std::span<const ModelToVerify> models,
                                                const Checkpoint* checkpoint,
                                                const VerifyOptions& options) {
  for (int reads = 1;; ++reads) {
    TRY_ASSIGN(auto verified, verify_once(models, checkpoint, options));
    if (reads == kMaxModelReads || !was_replaced(models, verified)) {
      return std::move(verified.reports);
    }
  }
}

Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                  const VerifyOptions& options) {
  return verify_one({model_path}, nullptr, options);
}

Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                          const Checkpoint& checkpoint,
                                          std::span<const ExpectedTensor> expected,
                                          const VerifyOptions& options) {
  TRY_ASSIGN(auto report, verify_one({model_path, expected}, &checkpoint, options));
  report.notes = checkpoint.notes();
  return report;
}

}  // namespace onnx_external
