// Determines whether the zero points of a matrix with kept codes are all the middle of the codes,
// or all integers. Such a matrix can be saved in a simpler form.
#pragma once

#include "checkpoint/quantized/matrix_rows.h"
#include "onnx_external/result.h"
#include "tensor/quantize/kept_codes.h"

namespace onnx_external {

// Reads the zero points, and sets members of `stored` according to whether all of them are the
// middle of the codes, or all are integers. Very many zero points are classified by their type
// alone. Errors are those of reading.
[[nodiscard]] Status judge_zeros(const MatrixRows& rows, StoredCodes& stored);

}  // namespace onnx_external
