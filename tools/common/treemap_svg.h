// The picture of inspect-external --svg: where the bytes go, as a treemap by module.
#pragma once

#include <string>
#include <string_view>

#include "inspect/inspect.h"

namespace onnx_external {

// How every picture begins, by which one is told from other files.
inline constexpr std::string_view kSvgStart = "<svg xmlns=\"http://www.w3.org/2000/svg\"";

// A whole SVG document, well-formed whatever the names hold: they are escaped and cut. No scripts,
// no references to anything outside; the same bytes for the same inspection. `title` is the name
// of what was inspected.
[[nodiscard]] std::string treemap_svg(std::string_view title, const Inspection& inspection);

}  // namespace onnx_external
