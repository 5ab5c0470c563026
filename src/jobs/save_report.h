// Fills in the report of a save, except for quantized matrices (quantize_report.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "jobs/save_job.h"
#include "onnx_external/mapping.h"
#include "onnx_external/model.h"
#include "onnx_external/save_external.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Fills in all members that follow from the mappings and the plan. `notes` are notes about the
// models' own data.
void report_plan(const MappingKeys& keys, std::span<const Mapping> mappings,
                 const std::vector<std::string>& notes, SaveJob& job);

// Fills in SavedModel::tensors, and moves strings from the plan into the report.
void report_tensors(const std::map<std::size_t, Overflow>& overflows, SaveJob& job);

// Adds to `report` the data files of replaced models that another tool wrote, unless they were kept
// for another model in the folder.
void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report);

// Adds to `report` each file that nodes of the model refer to (GraphFacts::side_files) and that is
// not in the folder.
void note_side_files(const Model& model, const std::filesystem::path& folder, SaveReport& report);

}  // namespace onnx_external
