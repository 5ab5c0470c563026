// Fills in the report of a save.
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

// Fills in what the mappings and the plan say. `notes`: on the models' own data.
void report_plan(const MappingKeys& keys, std::span<const Mapping> mappings,
                 const std::vector<std::string>& notes, SaveJob& job);

// Fills in SavedModel::tensors, with the texts of the plan, which loses them.
void report_tensors(const std::map<std::size_t, Overflow>& overflows, SaveJob& job);

// Notes in `report` the data files of replaced models that another tool wrote, unless they were
// left for another model of the folder.
void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report);

// Notes in `report` each file that nodes of the model name (GraphFacts::side_files) and that is not
// in the folder.
void note_side_files(const Model& model, const std::filesystem::path& folder, SaveReport& report);

}  // namespace onnx_external
