// Formats an error as a JSON document.
#pragma once

#include <string>
#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

// Returns {"error": {...}}, as documented in docs/cli.md. `file` is the file that the message is
// about, and may be empty.
[[nodiscard]] std::string error_document(std::string_view code, std::string_view message,
                                         std::string_view file, const ErrorDetails* details);

}  // namespace onnx_external
