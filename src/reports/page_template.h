// Declares the text of src/reports/page.html, which the build embeds.
#pragma once

#include <string_view>

namespace onnx_external {

extern const std::string_view kPageTemplate;

}  // namespace onnx_external
