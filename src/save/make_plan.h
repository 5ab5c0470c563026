// Makes the plan of a save: decides which data each tensor gets, and where its bytes are written.
// Later steps quantize, link or merge what was planned here.
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A pure function that reads no tensor data. The models, whose names are `names`, share data ranges
// in the same way as tied tensors within one model. `data_dir` was returned by choose_data_dir().
// Offsets follow the order of the mappings' pairs. With kLink, offsets are those in the
// checkpoint's files, whose names are empty until link_files(). Dedup::kContent is treated as
// kStorage. Errors as for plan_save(); kInvalidArgument for kInline with several models, which
// could share nothing. Requires: there are as many models as names and mappings.
[[nodiscard]] Result<SavePlan> make_plan(std::span<const Model> models,
                                         std::span<const std::string> names,
                                         const Checkpoint& checkpoint,
                                         std::span<const Mapping> mappings,
                                         const PlanOptions& options, const std::string& data_dir);

// Does the same for a single model.
[[nodiscard]] inline Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                                const Mapping& mapping, const PlanOptions& options,
                                                const SaveTarget& target = {}) {
  return make_plan({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1}, options,
                   target.data_dir);
}

}  // namespace onnx_external
