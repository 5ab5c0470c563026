// Suggests files that may be a missing data file under another name.
#pragma once

#include <string>
#include <string_view>

namespace onnx_external {

// Names files in the open folder that may be `name` under another name: in another case or Unicode
// form, with blanks as %20, not downloaded to its end, or renamed with its model. Begins with "; ",
// and says what to do. Empty if there is none. Looks at a limited number of names.
[[nodiscard]] std::string similar_files_text(int folder, std::string_view name);

}  // namespace onnx_external
