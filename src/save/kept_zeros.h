// Finds out whether the zero points of a quantized matrix whose codes are kept are all the middle
// of the codes, or all integers, because such a matrix can be saved in a simpler form.
#pragma once

#include "checkpoint/quantized/matrix_rows.h"
#include "onnx_external/result.h"
#include "tensor/quantize/kept_codes.h"

namespace onnx_external {

// Reads the zero points to find out whether all of them are the middle of the codes, or whether all
// are integers. If there are very many, they are classified by their type alone. Errors of reading.
[[nodiscard]] Status judge_zeros(const MatrixRows& rows, StoredCodes& stored);

}  // namespace onnx_external
