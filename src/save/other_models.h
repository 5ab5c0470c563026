// Finds the files that models in an output folder refer to.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/directory.h"
#include "base/name_map.h"

namespace onnx_external {

// The most models of a folder that are read; if there are more, the answer is unknown.
inline constexpr std::size_t kMaxOtherModels = 1000;

// Locations of files, relative to the models' folder, in their shortest spelling.
using FileSet = OwnedNameSet;
// Location of a file -> the first model by name that refers to it.
using FilesInUse = std::map<std::string, std::string, std::less<>>;

// Reads the graph of a model, but no tensor data. A file that is not a model refers to nothing.
// Returns nothing when it cannot be read.
[[nodiscard]] std::optional<FileSet> files_of_model(const Directory& folder,
                                                    const std::string& model_name);

// Returns the files that the ONNX models of the folder refer to: all files called *.onnx, except
// `models`. Returns nothing when one of them cannot be read.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              std::span<const std::string> models);

}  // namespace onnx_external
