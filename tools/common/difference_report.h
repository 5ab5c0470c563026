// What inspect-external --diff prints.
#pragma once

#include <string>

#include "inspect/difference.h"

namespace onnx_external {

// `a` and `b`: what the two sides are called.
[[nodiscard]] std::string difference_text(const Difference& difference, const std::string& a,
                                          const std::string& b, CompareBytes compared);
[[nodiscard]] std::string difference_document(const Difference& difference, CompareBytes compared);

}  // namespace onnx_external
