// Formats the report of inspect-external --diff as text and as JSON.
#pragma once

#include <string>

#include "inspect/difference.h"

namespace onnx_external {

// Formats a difference as text. `a` and `b` are the names of the two sides.
[[nodiscard]] std::string difference_text(const Difference& difference, const std::string& a,
                                          const std::string& b, CompareBytes compared);
[[nodiscard]] std::string difference_document(const Difference& difference, CompareBytes compared);

}  // namespace onnx_external
