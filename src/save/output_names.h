// The names that a save gives to what it puts into the output folder: which are allowed, which are
// free, and which are those of staging folders.
#pragma once

#include <string>
#include <string_view>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Both must be plain names that can stand in a location, different on any file system, and not
// look like a staging folder. kInvalidArgument.
[[nodiscard]] Status check_output_names(std::string_view model_name, std::string_view data_dir);

// ".save-external.<16 hex digits>.tmp"
[[nodiscard]] bool is_staging_name(std::string_view name);
[[nodiscard]] Result<std::string> random_staging_name();

// Refuses a model that may not be replaced and one that no rename can replace.
[[nodiscard]] Status check_model_entry(const Directory& out, const std::string& model_name,
                                       Overwrite overwrite);

}  // namespace onnx_external
