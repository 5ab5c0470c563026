// Fills in the report of a save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "jobs/save_job.h"
#include "onnx_external/mapping.h"
#include "onnx_external/save_external.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Fills in all members that follow from the mappings, the plan and what was written: `overflows`
// and `errors` are those of StagedSave, or of sampled_errors(). Moves strings from the plan into
// the report. Requires: the models are still loaded; the notes of the report are those about the
// models' own data.
void report_save(const MappingKeys& keys, std::span<const Mapping> mappings,
                 const std::map<std::size_t, Overflow>& overflows,
                 const std::map<std::uint32_t, double>& errors, SaveJob& job);

// Adds to `report` the data files of replaced models that another tool wrote, unless they were kept
// for another model in the folder.
void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report);

}  // namespace onnx_external
