#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "jobs/save_job.h"
#include "onnx_external/save_external.h"
#include "save/equal_bytes.h"
#include "save/job_name.h"
#include "save/link.h"
#include "save/make_plan.h"
#include "save/option_rules.h"
#include "save/output_names.h"
#include "save/plan_checks.h"
#include "save/planned_bytes.h"
#include "save/quantize_plan.h"
#include "save/sparse_files.h"
#include "verify/recorded_bytes.h"

namespace onnx_external {
namespace {

// Tensors that are produced on demand exist only while they are written, so Dedup::kContent cannot
// compare them beforehand.
Status check_made_tensors(const SavePlan& plan, const Checkpoint& checkpoint) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (kind_of_source(checkpoint, tensor) == StorageKind::kMade) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor " + quote(tensor.name) +
                      ": its bytes are made once, when they are written, and finding equal bytes "
                      "would need them before; leave it out, or give the tensor in memory");
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

}  // namespace

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
  std::string data_dir = target.data_dir;
  if (!target.folder.empty()) {
    TRY_ASSIGN(data_dir, choose_data_dir(target.folder, names, target.data_dir, write.overwrite,
                                         options.written_layout(), options.data_name));
  }
  TRY_ASSIGN(auto plan, make_plan(models, names, checkpoint, mappings, options, data_dir));
  for (std::uint32_t i = 0; i < models.size(); ++i) {
    TRY_IN(name_of(i), check_shapes(models[i], i, plan.tensors));
  }
  return complete(std::move(plan), models, checkpoint, target.folder, options, write, own);
}

Status note_sources(std::span<const Model> models, const Checkpoint& checkpoint,
                    const WriteOptions& write, SavePlan& plan) {
  // Processes of a team write into shared files, without holes.
  if (write.team == nullptr) {
    note_holes(checkpoint, plan);
  }
  TRY_ASSIGN(plan.job, name_job(plan, models, checkpoint));
  return {};
}

Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const SaveTarget& target, const PlanOptions& options,
                           const WriteOptions& write) {
  TRY(check_option_rules(options, write, mapping.options.casts));
  TRY_ASSIGN(auto plan, plan_models({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1},
                                    target, options, write));
  TRY(note_sources({&model, 1}, checkpoint, write, plan));
  return plan;
}

}  // namespace onnx_external
