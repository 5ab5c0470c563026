#include "checkpoint/assembly/quantizer_numbers.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

template <typename T>
void append(std::string& bytes, T number) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &number, sizeof(T));
}

// Calls use(number) for all numbers in `bytes`, until a call fails.
template <typename T, typename Use>
Status for_each(const std::string& bytes, const Use& use) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T number{};
    std::memcpy(&number, bytes.data() + at, sizeof(T));
    TRY(use(number));
  }
  return {};
}

Status add_scale(double scale, Numbers& out) {
  const auto narrow = static_cast<float>(scale);
  if (!std::isfinite(narrow) || narrow <= 0) {
    return fail(ErrorCode::kUnsupported,
                "its scale " + std::to_string(scale) + " is not a positive float32");
  }
  append(out.bytes, narrow);
  return {};
}

template <typename T>
Status add_as(std::int64_t zero_point, Numbers& out) {
  if (!std::in_range<T>(zero_point)) {
    return fail(ErrorCode::kUnsupported, "its zero point " + std::to_string(zero_point) +
                                             " does not fit " + std::string(torch_name(out.dtype)));
  }
  append(out.bytes, static_cast<T>(zero_point));
  return {};
}

Status add_zero_point(std::int64_t zero_point, Numbers& out) {
  switch (out.dtype) {
    case DType::kInt8:
      return add_as<std::int8_t>(zero_point, out);
    case DType::kUInt8:
      return add_as<std::uint8_t>(zero_point, out);
    default:
      return add_as<std::int32_t>(zero_point, out);
  }
}

tl::unexpected<Error> wrong_type(std::string_view what, DType dtype) {
  return fail(ErrorCode::kUnsupported, "its " + std::string(what) + " are " +
                                           std::string(torch_name(dtype)) +
                                           ", which is not supported");
}

}  // namespace

Result<Numbers> scale_numbers(double scale) {
  Numbers out;
  TRY(add_scale(scale, out));
  return out;
}

Result<Numbers> scale_numbers(const Numbers& scales) {
  Numbers out;
  const auto add = [&](auto scale) { return add_scale(scale, out); };
  if (scales.dtype == DType::kFloat64) {
    TRY(for_each<double>(scales.bytes, add));
  } else if (scales.dtype == DType::kFloat32) {
    TRY(for_each<float>(scales.bytes, add));
  } else {
    return wrong_type("scales", scales.dtype);
  }
  return out;
}

Result<Numbers> zero_point_numbers(std::int64_t zero_point, DType integers) {
  Numbers out{.dtype = integers, .bytes = {}};
  TRY(add_zero_point(zero_point, out));
  return out;
}

Result<Numbers> zero_point_numbers(const Numbers& zero_points, DType integers) {
  Numbers out{.dtype = integers, .bytes = {}};
  const auto add = [&](auto zero_point) { return add_zero_point(zero_point, out); };
  if (zero_points.dtype == DType::kFloat32 || zero_points.dtype == DType::kFloat64) {
    return zero_points;
  }
  if (zero_points.dtype == DType::kInt64) {
    TRY(for_each<std::int64_t>(zero_points.bytes, add));
  } else if (zero_points.dtype == DType::kInt32) {
    TRY(for_each<std::int32_t>(zero_points.bytes, add));
  } else {
    return wrong_type("zero points", zero_points.dtype);
  }
  return out;
}

Numbers axis_number(std::int64_t axis) {
  Numbers out{.dtype = DType::kInt64, .bytes = {}};
  append(out.bytes, axis);
  return out;
}

}  // namespace onnx_external
