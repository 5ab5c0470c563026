// What a save says about quantized matrices.
#pragma once

#include <string>
#include <vector>

#include "common/text_report.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// A line for each quantized matrix: its scheme, its size before and after, and its error. Nothing
// if none is quantized.
[[nodiscard]] std::string matrices_text(const SavedModel& model);

// "quantized: 105 matrices, 1.48 GB as 456 MB (4.56 bits a weight): ...", and the weights that stay
// floats, by reason. Nothing if none is quantized.
[[nodiscard]] std::string quantized_text(const SavedModel& model, Lists lists);

}  // namespace onnx_external
