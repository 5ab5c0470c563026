// Describes invalid regular expressions in error messages.
#pragma once

#include <string>
#include <string_view>

namespace onnx_external {

// Turns the text of RE2::error() into a message: "missing ): (a" becomes "invalid regular
// expression, 'missing )' in '(a'".
[[nodiscard]] std::string invalid_expression_text(std::string_view re2_error);

}  // namespace onnx_external
