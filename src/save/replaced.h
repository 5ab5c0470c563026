// A note in the staging folder: which model the save replaces. Only written where the file system
// cannot let two files change places (exFAT, many FUSE file systems): the old model, which would
// tell otherwise, is gone with the commit then.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/generations.h"

namespace onnx_external {

// Starts like staging folders do, so no model and no data file is called that.
inline constexpr std::string_view kReplacedName = ".save-external.replaced";

// The replaced model itself, once a later save could not remove its data either.
inline constexpr std::string_view kReplacedModelName = ".save-external.replaced.onnx";

[[nodiscard]] std::string replaced_text(const ModelIdentity& model);

// Nothing when there is no such note, or it is not exactly as replaced_text() writes it: a commit
// waits for a whole one. An error when it cannot be read, so that it cannot be told.
[[nodiscard]] Result<std::optional<ModelIdentity>> read_replaced(const Directory& staging);

}  // namespace onnx_external
