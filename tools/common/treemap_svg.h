// The picture of inspect-external --svg: where the bytes go, as a treemap by module.
#pragma once

#include <string>
#include <string_view>

#include "inspect/inspect.h"

namespace onnx_external {

// How every picture begins; other files do not.
inline constexpr std::string_view kSvgStart = "<svg xmlns=\"http://www.w3.org/2000/svg\"";

// A complete SVG document. It is well-formed whatever the names contain, because they are escaped
// and cut. It has no scripts and no references to other files, and depends only on its arguments.
// `title` is the name of the inspected files.
[[nodiscard]] std::string treemap_svg(std::string_view title, const Inspection& inspection);

}  // namespace onnx_external
