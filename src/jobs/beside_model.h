// Adds notes to the save report about files beside a model that are not its own data.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// Notes in `report` the data files of replaced models that another tool wrote, unless they were
// left for another model of the folder.
void note_data_of_other_tools(const std::vector<std::string>& files, SaveReport& report);

// Notes in `report` each file that nodes of the model name (GraphFacts::side_files) and that is not
// in the folder.
void note_side_files(const Model& model, const std::filesystem::path& folder, SaveReport& report);

}  // namespace onnx_external
