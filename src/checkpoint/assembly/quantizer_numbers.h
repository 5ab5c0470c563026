// Converts scales and zero points of quantized tensors to the types that ONNX's DequantizeLinear
// takes.
//
// Source: the operator's specification: x_scale is float32, x_zero_point has the type of x.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Contiguous numbers of one type, little-endian.
struct Numbers {
  DType dtype = DType::kFloat32;
  std::string bytes;
};

// Rounds to the nearest float32. kUnsupported if that is infinite, zero, negative or NaN, and so
// not a scale.
[[nodiscard]] Result<Numbers> scale_numbers(double scale);
// Converts from float32 or float64. Also kUnsupported for other types.
[[nodiscard]] Result<Numbers> scale_numbers(const Numbers& scales);

// Converts to the type of the integers. kUnsupported if one does not fit.
[[nodiscard]] Result<Numbers> zero_point_numbers(std::int64_t zero_point, DType integers);
// Converts from int32 or int64. Fractions (torch's per_channel_affine_float_qparams) stay
// unchanged.
[[nodiscard]] Result<Numbers> zero_point_numbers(const Numbers& zero_points, DType integers);

// The axis as int64, the type that ONNX uses.
[[nodiscard]] Numbers axis_number(std::int64_t axis);

}  // namespace onnx_external
