// Fills in the part of a save's report that describes quantized matrices, and estimates
// quantization errors for a dry run.
#pragma once

#include <cstdint>
#include <map>

#include "jobs/save_job.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills in SavedModel::quantized and SavedModel::floats of each model. `errors` has the
// quantization error of each matrix, by the index of the range with its codes. Requires: the plan
// still has the strings that report_save() moves into the report.
void report_quantized(SaveJob& job, const std::map<std::uint32_t, double>& errors);

// Estimates the quantization error of each matrix from a few of its rows, for a dry run. Leaves out
// tensors that are produced on demand. Errors are those of reading and of quantize_rows().
[[nodiscard]] Result<std::map<std::uint32_t, double>> sampled_errors(const SavePlan& plan,
                                                                     const Checkpoint& checkpoint);

}  // namespace onnx_external
