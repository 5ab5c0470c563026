// A note in the staging folder that identifies the replaced model. It is written only where the
// file system cannot exchange two files (exFAT, many FUSE file systems): there the commit removes
// the old model, which would tell otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"

namespace onnx_external {

// Begins with the prefix of staging folders, so no model and no data file has this name.
inline constexpr std::string_view kReplacedName = ".save-external.replaced";

// The name of the replaced model itself once a later save could not remove its data either.
inline constexpr std::string_view kReplacedModelName = ".save-external.replaced.onnx";

[[nodiscard]] std::string replaced_text(const ModelIdentity& model);

// Nothing when there is no such note, or it is not exactly as replaced_text() writes it: the commit
// comes only after a complete one. An error when it cannot be read.
[[nodiscard]] Result<std::optional<ModelIdentity>> read_replaced(const Directory& staging);

}  // namespace onnx_external
