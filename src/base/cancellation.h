// Adds the folder and the phase to the error of a cancelled save.
#pragma once

#include <filesystem>
#include <optional>

#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns, for kCancelled, "out: cancelled while copying; nothing was published", and any other
// error unchanged. Without a phase, the message names only the folder.
[[nodiscard]] Error cancelled_in(const std::filesystem::path& folder, std::optional<Phase> phase,
                                 Error error);

// Returns `given` as a function that also writes into `phase`, which must outlive it, when it is
// asked to stop. An empty function stays empty.
[[nodiscard]] ProgressFn noting_phase(const ProgressFn& given, std::optional<Phase>& phase);

}  // namespace onnx_external
