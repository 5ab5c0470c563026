// The other models of an output folder: what they refer to is theirs, too.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "base/directory.h"

namespace onnx_external {

// So many models are looked at in a folder; with more, nothing is said of any.
inline constexpr std::size_t kMaxOtherModels = 1000;

// Location of a file (its shortest spelling) -> the first model by name that refers to it.
using FilesInUse = std::map<std::string, std::string, std::less<>>;

// The files that the ONNX models of the folder refer to, but for `model_name`: of all files called
// *.onnx only the graphs are read, not the numbers. Files that are no models refer to nothing.
// Nothing when it cannot be told.
[[nodiscard]] std::optional<FilesInUse> files_of_other_models(const Directory& folder,
                                                              const std::string& model_name);

}  // namespace onnx_external
