// Declares the readers of quantization methods (GPTQ, AWQ, ...), one for each library's naming or
// layout. Each reader adds the weights whose stored tensors it recognizes, and ignores all other
// tensors. Errors: kCorrupt for recognized tensors that are inconsistent; kUnsupported for an
// unsupported layout, which the message states.
#pragma once

#include "checkpoint/quantized/matrix_finder.h"

namespace onnx_external {

[[nodiscard]] Status find_compressed_tensors(MatrixFinder& finder);
[[nodiscard]] Status find_float4(MatrixFinder& finder);
[[nodiscard]] Status find_float6(MatrixFinder& finder);
[[nodiscard]] Status find_float8(MatrixFinder& finder);
[[nodiscard]] Status find_awq(MatrixFinder& finder);
[[nodiscard]] Status find_quark(MatrixFinder& finder);
[[nodiscard]] Status find_gptq(MatrixFinder& finder);
[[nodiscard]] Status find_bitsandbytes(MatrixFinder& finder);
[[nodiscard]] Status find_grouped_axis(MatrixFinder& finder);
[[nodiscard]] Status find_plain_integers(MatrixFinder& finder);
[[nodiscard]] Status find_rows_in_bytes(MatrixFinder& finder);

}  // namespace onnx_external
