// Suggests files that may be a model's missing data file under another name.
#pragma once

#include <string>
#include <string_view>

namespace onnx_external {

// Returns a text for an error message about the missing file `name`. It suggests files in the open
// folder `folder` whose names differ only in case, Unicode form or blanks (%20), that are
// incomplete downloads, or that were renamed together with their model. The text begins with "; "
// and says how to proceed. It is empty if there is no such file. Only a limited number of names is
// compared.
[[nodiscard]] std::string similar_files_text(int folder, std::string_view name);

}  // namespace onnx_external
