// The first step of plan_save(): decides which data each tensor gets, and where its bytes go.
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Pure: reads no tensor, and the names are those of choose_data_dir(). Models, called `names`,
// share ranges as tied tensors of one model do. Offsets follow the order of the mappings' pairs;
// those of kLink are the checkpoint's, and its files have no names before link_files().
// Dedup::kContent is as kStorage. Errors as plan_save(); kInvalidArgument for kInline with several
// models, where nothing can be shared. Requires: as many models, names and mappings.
[[nodiscard]] Result<SavePlan> make_plan(std::span<const Model> models,
                                         std::span<const std::string> names,
                                         const Checkpoint& checkpoint,
                                         std::span<const Mapping> mappings,
                                         const PlanOptions& options, const std::string& data_dir);

// The same for a single model.
[[nodiscard]] inline Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                                const Mapping& mapping, const PlanOptions& options,
                                                const SaveTarget& target = {}) {
  return make_plan({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1}, options,
                   target.data_dir);
}

}  // namespace onnx_external
