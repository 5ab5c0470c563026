#include <utility>

#include "base/try.h"
#include "onnx_external/save_external.h"
#include "save/equal_bytes.h"
#include "save/given_bytes.h"
#include "save/link.h"
#include "save/make_plan.h"
#include "save/output_names.h"
#include "save/reuse.h"
#include "verify/recorded_bytes.h"

namespace onnx_external {

Result<SavePlan> plan_save(const Model& model, const Checkpoint& checkpoint, const Mapping& mapping,
                           const SaveTarget& target, const PlanOptions& options,
                           const WriteOptions& write) {
  SaveTarget named = target;
  if (!target.folder.empty()) {
    TRY_ASSIGN(named.data_dir, choose_data_dir(target.folder, target.model_name, target.data_dir,
                                               write.overwrite, options.layout));
  }
  TRY_ASSIGN(auto plan, make_plan(model, checkpoint, mapping, options, named));
  TRY(check_given_bytes(plan, model, options.max_expand));
  if (options.layout == Layout::kLink) {
    TRY_ASSIGN(plan, link_files(std::move(plan), model, checkpoint, target.folder));
  }
  if (options.dedup == Dedup::kContent) {
    TRY_ASSIGN(plan, merge_equal_bytes(std::move(plan), model, checkpoint, options, write.threads,
                                       write.progress));
  }
  if (options.reuse == Reuse::kEqualFiles && write.overwrite == Overwrite::kAllow &&
      !target.folder.empty()) {
    TRY_ASSIGN(plan, reuse_equal_files(std::move(plan), model, checkpoint, target.folder, write));
  }
  TRY(note_recorded_crcs(model, plan));
  return plan;
}

}  // namespace onnx_external
