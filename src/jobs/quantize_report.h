// Fills in the part of a save's report that describes quantized matrices.
#pragma once

#include <cstdint>
#include <map>

#include "jobs/save_job.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills in SavedModel::quantized and floats of each model. `errors`: by the range of the codes.
// Requires: the plan still has its tensors.
void report_quantized(SaveJob& job, const std::map<std::uint32_t, double>& errors);

// The errors of a few rows of each matrix, for a dry run. Leaves out tensors that are made on
// demand. Errors of reading and of quantize_rows().
[[nodiscard]] Result<std::map<std::uint32_t, double>> sampled_errors(const SavePlan& plan,
                                                                     const Checkpoint& checkpoint);

}  // namespace onnx_external
