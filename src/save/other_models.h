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

// The maximum number of models in a folder that are read. If there are more, the files in use are
// not known.
inline constexpr std::size_t kMaxOtherModels = 1000;

// Locations of files, relative to the models' folder, in their shortest form.
using FileSet = OwnedNameSet;
// Maps the location of a file to the first model, by name, that refers to it.
using FilesInUse = std::map<std::string, std::string, std::less<>>;

// Returns the files to which a model refers. Reads the graph, but no tensor data. Returns an empty
// set for a file that is not a model, and nullopt for a file that cannot be read.
[[nodiscard]] std::optional<FileSet> files_of_model(const Directory& folder,
                                                    const std::string& model_name);

// Returns the files to which the ONNX models in the folder refer. All files named *.onnx are read,
// except `models`. Returns nullopt if one of these files cannot be read.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              std::span<const std::string> models);

}  // namespace onnx_external
