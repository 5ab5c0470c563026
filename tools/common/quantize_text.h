// Formats the part of a save's report that is about quantized matrices.
#pragma once

#include <string>
#include <vector>

#include "common/text_report.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// Returns a line for each quantized matrix, with its scheme, its size before and after, and its
// error. Returns "" if no matrix is quantized.
[[nodiscard]] std::string matrices_text(const SavedModel& model);

// Returns a summary such as "quantized: 105 matrices, 1.48 GB as 456 MB (4.56 bits a weight): ...",
// and the weights that stay in floats, grouped by reason. Returns "" if no matrix is quantized.
[[nodiscard]] std::string quantized_text(const SavedModel& model, Lists lists);

}  // namespace onnx_external
