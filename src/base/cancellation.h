// Adds the output folder and the phase (copying, verifying, ...) to the error of a save that the
// caller cancelled.
#pragma once

#include <filesystem>
#include <optional>

#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the error "out: cancelled while copying; nothing was published" for kCancelled, and any
// other error unchanged. Without a phase, the message names only the folder.
[[nodiscard]] Error cancelled_in(const std::filesystem::path& folder, std::optional<Phase> phase,
                                 Error error);

// Wraps `given` in a function that also stores the current phase in `phase` if `given` asks to
// stop. `phase` must outlive the result. If `given` is empty, so is the result.
[[nodiscard]] ProgressFn noting_phase(const ProgressFn& given, std::optional<Phase>& phase);

}  // namespace onnx_external
