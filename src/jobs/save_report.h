// Fills in the report of a save, and estimates quantization errors for a dry run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "jobs/save_job.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Fills in all members that follow from the mappings, the plan and what was written. A dry run has
// only the errors of sampled_errors(). Moves strings from the plan into the report. Requires: the
// models are still loaded; the notes of the report are those about the models' own data.
void report_save(const MappingKeys& keys, std::span<const Mapping> mappings,
                 const WrittenSave& written, SaveJob& job);

// Adds to `report` the data files of replaced models that another tool wrote, unless they were kept
// for another model in the folder.
void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report);

// Fills in SavedModel::quantized and SavedModel::floats of each model. `errors` has the
// quantization error of each matrix, by the index of the range with its codes. Requires: the plan
// still has the strings that report_save() moves into the report.
void report_quantized(SaveJob& job, const std::map<std::uint32_t, double>& errors);

// Estimates the quantization error of each matrix from a few of its rows, for a dry run. Leaves out
// tensors that are produced on demand. Errors are those of reading and of quantize_rows().
[[nodiscard]] Result<std::map<std::uint32_t, double>> sampled_errors(const SavePlan& plan,
                                                                     const Checkpoint& checkpoint);

}  // namespace onnx_external
