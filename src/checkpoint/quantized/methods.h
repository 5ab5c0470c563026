// The readers of quantization methods, one for each library's names or layout. Each adds the
// weights whose stored tensors it knows, and leaves all others. Errors: tensors with its names that
// do not fit each other (kCorrupt), or of a layout that is not supported (kUnsupported, with its
// name).
#pragma once

#include "checkpoint/quantized/matrix_finder.h"

namespace onnx_external {

[[nodiscard]] Status find_compressed_tensors(MatrixFinder& finder);
[[nodiscard]] Status find_float4(MatrixFinder& finder);
[[nodiscard]] Status find_float8(MatrixFinder& finder);
[[nodiscard]] Status find_awq(MatrixFinder& finder);
[[nodiscard]] Status find_gptq(MatrixFinder& finder);
[[nodiscard]] Status find_bitsandbytes(MatrixFinder& finder);
[[nodiscard]] Status find_grouped_axis(MatrixFinder& finder);
[[nodiscard]] Status find_plain_integers(MatrixFinder& finder);

}  // namespace onnx_external
