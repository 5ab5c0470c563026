// Finds the files that other models in an output folder refer to, because these must not be
// removed.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "base/directory.h"

namespace onnx_external {

// At most so many models of a folder are read; if there are more, the answer is unknown.
inline constexpr std::size_t kMaxOtherModels = 1000;

// Location of a file (its shortest spelling) -> the first model by name that refers to it.
using FilesInUse = std::map<std::string, std::string, std::less<>>;

// Returns the files that the ONNX models of the folder refer to, except `model_name`. Reads the
// graphs of all files called *.onnx, but no tensor data. Files that are not models refer to
// nothing. Returns nothing when a model cannot be read.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              const std::string& model_name);

}  // namespace onnx_external
