// Converts the scales and zero points of quantized tensors to the types that ONNX's
// DequantizeLinear requires.
//
// According to the operator's specification, x_scale is float32, and x_zero_point has the type of
// x.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Contiguous values of one type, little-endian.
struct Numbers {
  DType dtype = DType::kFloat32;
  std::string bytes;
};

// Rounds a scale to the nearest float32. Fails with kUnsupported if the result is infinite, zero,
// negative or NaN.
[[nodiscard]] Result<Numbers> scale_numbers(double scale);
// Converts float32 or float64 scales. Also fails with kUnsupported for other types.
[[nodiscard]] Result<Numbers> scale_numbers(const Numbers& scales);

// Converts a zero point to the type of the integers. Fails with kUnsupported if the value is out of
// range.
[[nodiscard]] Result<Numbers> zero_point_numbers(std::int64_t zero_point, DType integers);
// Converts int32 or int64 zero points. Floating-point zero points (torch's
// per_channel_affine_float_qparams) stay unchanged.
[[nodiscard]] Result<Numbers> zero_point_numbers(const Numbers& zero_points, DType integers);

// Returns the axis as int64, the type that ONNX uses.
[[nodiscard]] Numbers axis_number(std::int64_t axis);

}  // namespace onnx_external
