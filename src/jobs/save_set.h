// Planning a set; save_set.cc carries it out.
#pragma once

#include <span>
#include <string>

#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// As plan_save(), for several models called `names`. The model's name in `target` is not used.
// Requires: as many models, names and mappings.
[[nodiscard]] Result<SavePlan> plan_set(std::span<const Model> models,
                                        std::span<const std::string> names,
                                        const Checkpoint& checkpoint,
                                        std::span<const Mapping> mappings, const SaveTarget& target,
                                        const PlanOptions& options, const WriteOptions& write);

}  // namespace onnx_external
