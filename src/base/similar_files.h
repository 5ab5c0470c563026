// Suggests files that may be the missing data file of a model under another name.
#pragma once

#include <string>
#include <string_view>

namespace onnx_external {

// Returns text for an error message that names files in the open folder `folder` which may be the
// missing file `name`: in another case or Unicode form, with blanks as %20, incompletely
// downloaded, or renamed together with its model. The text begins with "; " and says what to do; it
// is empty if there is no such file. Only a limited number of names is compared.
[[nodiscard]] std::string similar_files_text(int folder, std::string_view name);

}  // namespace onnx_external
