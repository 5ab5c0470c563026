// The zero points of a matrix whose codes are kept.
#pragma once

#include "checkpoint/quantized/matrix_rows.h"
#include "onnx_external/result.h"
#include "tensor/quantize/kept_codes.h"

namespace onnx_external {

// Tells from the zero points themselves whether they are the middle of the codes, or integers. Of
// matrices with very many, only what their type says counts. Errors of reading.
[[nodiscard]] Status judge_zeros(const MatrixRows& rows, StoredCodes& stored);

}  // namespace onnx_external
