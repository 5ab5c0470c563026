// Turns the plan of a save into one whose matrices are quantized.
#pragma once

#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/own_weights.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Replaces each tensor that becomes codes by the parts of its matrices (onnx/matrix_choice.h),
// whose ranges follow each other, and lays out all ranges again. Matrices of one range, with the
// same rows and scheme, share their parts. Weights that models hold are taken from `own`; without
// it they stay unchanged. Fills in PlannedModel::matrices. Pure. kUnsupported if nothing becomes
// codes, or a form needs a newer opset; errors of make_plan().
[[nodiscard]] Status quantize_plan(const SourceModels& models, const Checkpoint& checkpoint,
                                   const PlanOptions& options, MatchedInputs inputs,
                                   const OwnWeights& own, SavePlan& plan);

}  // namespace onnx_external
