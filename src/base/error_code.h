// The stable names of error codes in JSON documents and Python exceptions.
#pragma once

#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

// "not-found", "mismatch", ...: documented in docs/cli.md.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

}  // namespace onnx_external
