#include "onnx_external/verify.h"

#include <algorithm>
#include <array>
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

// As check_ranges(). Linked files may be in a folder of their own; of these only places are
// compared.
Result<std::vector<RangeAnswer>> check_all(std::span<ModelVerifier* const> verifiers,
                                           std::span<const RangeCheck> checks,
                                           const Checkpoint* checkpoint,
                                           const VerifyOptions& options, ProgressMeter& meter) {
  std::array<std::vector<RangeCheck>, 2> parts;  // own ones, linked ones
  std::vector<bool> is_linked;
  for (const RangeCheck& check : checks) {
    is_linked.push_back(std::any_of(verifiers.begin(), verifiers.end(), [&](const auto* verifier) {
      return verifier->is_linked_elsewhere(check.location);
    }));
    parts[is_linked.back() ? 1 : 0].push_back(check);
  }
  if (parts[1].empty()) {
    return check_ranges(verifiers.front()->data_folder(), checks, checkpoint, options, meter);
  }
  VerifyOptions places = options;
  places.compare = Compare::kPlaces;
  std::vector<RangeAnswer> own;
  if (!parts[0].empty()) {
    TRY_ASSIGN(
        own, check_ranges(verifiers.front()->data_folder(), parts[0], checkpoint, options, meter));
  }
  TRY_ASSIGN(auto linked,
             check_ranges(verifiers.front()->linked_folder(), parts[1], checkpoint, places, meter));
  std::vector<RangeAnswer> answers;
  auto next_own = own.begin();
  auto next_linked = linked.begin();
  for (const bool linked_one : is_linked) {
    answers.push_back(std::move(*(linked_one ? next_linked++ : next_own++)));
  }
  return answers;
}

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
  TRY_ASSIGN(const auto answers, check_all(verifiers, plan.checks(), checkpoint, options, meter));
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
  std::map<std::pair<std::filesystem::path, std::filesystem::path>, std::vector<ModelVerifier*>>
      by_folder;
  for (const ModelToVerify& model : models) {
    TRY_ASSIGN(auto file, read_model_file(model.path, options.drop_cache));
    verified.models.push_back(std::move(file));
    ModelVerifier& verifier = verifiers.emplace_back(verified.models.back(), checkpoint, options);
    TRY(verifier.prepare(model));
    by_folder[{verifier.data_folder(), verifier.linked_folder()}].push_back(&verifier);
  }
  for (const auto& [folder, of_folder] : by_folder) {
    TRY(check_data(of_folder, checkpoint, options));
  }
  for (ModelVerifier& verifier : verifiers) {
    verified.reports.push_back(verifier.collect());
  }
  return verified;
}

// Returns whether a model with findings has been replaced since it was read.
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
