// Formats an error as a JSON document.
#pragma once

#include <string>
#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

// {"error": {...}}, as docs/cli.md documents it. `file`: what the message is about; may be empty.
[[nodiscard]] std::string error_document(std::string_view code, std::string_view message,
                                         std::string_view file, const ErrorDetails* details);

}  // namespace onnx_external
