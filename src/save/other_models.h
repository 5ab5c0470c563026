// The other models of an output folder: the files that they refer to must not be removed.
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

// The files that the ONNX models of the folder refer to, but for `model_name`: of all files called
// *.onnx only the graphs are read, not the numbers. Files that are no models refer to nothing.
// Nothing when a model cannot be read.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              const std::string& model_name);

}  // namespace onnx_external
