// Finds the files to which models in an output folder refer.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/directory.h"
#include "base/name_map.h"

namespace onnx_external {

// The maximum number of models in a folder that are read; if there are more, the result is unknown.
inline constexpr std::size_t kMaxOtherModels = 1000;

// Locations of files, relative to the models' folder, in their shortest form.
using FileSet = OwnedNameSet;
// Maps the location of a file to the first model, by name, that refers to it.
using FilesInUse = std::map<std::string, std::string, std::less<>>;

// Reads the graph of a model, but no tensor data. A file that is not a model refers to no files.
// Returns nullopt if the file cannot be read.
[[nodiscard]] std::optional<FileSet> files_of_model(const Directory& folder,
                                                    const std::string& model_name);

// Returns the files to which the ONNX models in the folder refer. All files called *.onnx are read,
// except `models`. Returns nullopt if one of them cannot be read.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              std::span<const std::string> models);

}  // namespace onnx_external
