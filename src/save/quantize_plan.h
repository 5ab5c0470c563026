// Changes the plan of a save so that matrices are quantized.
#pragma once

#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/own_weights.h"
#include "save/planned_bytes.h"

namespace onnx_external {

// Replaces each tensor that is quantized by the parts of its matrices (onnx/matrix_choice.h), in
// consecutive ranges, and lays out all ranges again. Matrices of the same range with the same rows
// and scheme share their parts. Weights in the models themselves are read through `own`, and stay
// unchanged if `own` is empty. Fills in PlannedModel::matrices. A pure function. Fails with
// kUnsupported if nothing can be quantized, or if a form needs a newer opset. Fails with kNotFound
// if a pattern of the options is not used for any matrix. Other errors are those of make_plan().
[[nodiscard]] Status quantize_plan(const SourceModels& models, const Checkpoint& checkpoint,
                                   const PlanOptions& options, MatchedInputs inputs,
                                   const OwnWeights& own, SavePlan& plan);

}  // namespace onnx_external
