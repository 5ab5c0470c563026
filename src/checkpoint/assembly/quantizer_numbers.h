// Scales and zero points of quantized tensors, as ONNX's DequantizeLinear takes them.
//
// Source: the operator's specification: x_scale is float32, x_zero_point has the type of x.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Numbers of one type, one behind the other, little-endian.
struct Numbers {
  DType dtype = DType::kFloat32;
  std::string bytes;
};

// The nearest float32. kUnsupported when that is infinite, zero, negative or NaN: no scale.
[[nodiscard]] Result<Numbers> scale_numbers(double scale);
// From float32 or float64. kUnsupported for other types, too.
[[nodiscard]] Result<Numbers> scale_numbers(const Numbers& scales);

// In the type of the integers. kUnsupported when one does not fit.
[[nodiscard]] Result<Numbers> zero_point_numbers(std::int64_t zero_point, DType integers);
// From int32 or int64. Fractions (torch's per_channel_affine_float_qparams) stay as they are.
[[nodiscard]] Result<Numbers> zero_point_numbers(const Numbers& zero_points, DType integers);

// int64, as ONNX has it.
[[nodiscard]] Numbers axis_number(std::int64_t axis);

}  // namespace onnx_external
