// Creates the plan of a save, which states the data of each tensor and the position where it is
// written. Later steps change this plan to quantize, link or merge tensors.
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Creates the plan for models with the names `names`, which share data ranges like tied tensors of
// one model. A pure function that reads no tensor data. Offsets follow the order of the mappings'
// pairs. With kLink, offsets are those in the checkpoint's files, whose names are empty until
// link_files(). Dedup::kContent is treated as kStorage. Errors are those of plan_save(). Also fails
// with kInvalidArgument for kInline with several models, because they could not share data.
// Requires: there are as many models as names and mappings; `data_dir` was returned by
// choose_data_dir().
[[nodiscard]] Result<SavePlan> make_plan(std::span<const Model> models,
                                         std::span<const std::string> names,
                                         const Checkpoint& checkpoint,
                                         std::span<const Mapping> mappings,
                                         const PlanOptions& options, const std::string& data_dir);

// Creates the plan for a single model.
[[nodiscard]] inline Result<SavePlan> make_plan(const Model& model, const Checkpoint& checkpoint,
                                                const Mapping& mapping, const PlanOptions& options,
                                                const SaveTarget& target = {}) {
  return make_plan({&model, 1}, {&target.model_name, 1}, checkpoint, {&mapping, 1}, options,
                   target.data_dir);
}

}  // namespace onnx_external
