// Reads the scales and zero points of HQQ's weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/quantized/matrix_finder.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Returns the integer that a tensor of a module holds, or nullopt if there is no such tensor.
[[nodiscard]] Result<std::optional<std::int64_t>> hqq_integer(const MatrixFinder& finder,
                                                              const std::string& module,
                                                              std::string_view component);

// Returns the axis along which groups run: 0 or 1; nullopt as for hqq_integer(). Errors:
// kUnsupported for other axes.
[[nodiscard]] Result<std::optional<std::int64_t>> hqq_axis(const MatrixFinder& finder,
                                                           const std::string& module,
                                                           std::string_view component);

// Returns the values of the tensor `name` ("scale" or "zero") of a module, or nullopt if there is
// none. Versions before 0.2 may quantize them to 8 bits: the codes are in NAME_q, and their own
// scales and zero points in "meta_NAME.scale" and "meta_NAME.zero". Errors: kCorrupt.
[[nodiscard]] Result<std::optional<StoredTensor>> hqq_numbers(const MatrixFinder& finder,
                                                              const std::string& module,
                                                              const std::string& name);

}  // namespace onnx_external
