// Adds the output folder and the phase (copying, verifying, ...) to the error of a save that the
// caller cancelled.
#pragma once

#include <filesystem>
#include <optional>

#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

// For kCancelled, returns an error such as "out: cancelled while copying; nothing was published";
// if there is no phase, the message states only the folder. Returns any other error unchanged.
[[nodiscard]] Error cancelled_in(const std::filesystem::path& folder, std::optional<Phase> phase,
                                 Error error);

// Returns a function that calls `given` and, if `given` returns kCancel, stores the current phase
// in `phase`. `phase` must outlive the result. If `given` is empty, the result is also empty.
[[nodiscard]] ProgressFn noting_phase(const ProgressFn& given, std::optional<Phase>& phase);

}  // namespace onnx_external
