// What a save says of files beside a model that are not its own data.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "onnx_external/model.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// The files of the external data of the models that have these names in the folder, relative to it.
// Call it before they are replaced; names of no model that can be read are left out.
[[nodiscard]] std::set<std::string> data_files_of(const std::filesystem::path& folder,
                                                  std::span<const std::string> models);

// Notes in `report` each of the `old` files that is still in the folder, that no tensor of the
// `saved` models is in, and that was not left for another model: nobody knows whose it is.
void note_left_data(const std::filesystem::path& folder, const std::set<std::string>& old,
                    std::span<const SaveReport> saved, SaveReport& report);

// Notes in `report` each file that nodes of the model name (GraphFacts::side_files) and that is not
// in the folder.
void note_side_files(const Model& model, const std::filesystem::path& folder, SaveReport& report);

}  // namespace onnx_external
