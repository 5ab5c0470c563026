#include "checkpoint/assembly/quantizer_numbers.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace onnx_external {
namespace {

template <typename T>
void append(std::string& bytes, T number) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &number, sizeof(T));
}

// Calls use(number) for all numbers in `bytes`, until it fails.
template <typename T, typename Use>
Status for_each(const std::string& bytes, const Use& use) {
  Status status;
  for (std::size_t at = 0; status && at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T number{};
    std::memcpy(&number, bytes.data() + at, sizeof(T));
    status = use(number);
  }
  return status;
}

Status add_scale(double scale, Numbers& out) {
  const auto narrow = static_cast<float>(scale);
  if (!std::isfinite(narrow) || narrow <= 0) {
    return fail(ErrorCode::kUnsupported,
                "its scale " + std::to_string(scale) + " is no positive float32");
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

Result<Numbers> finished(Status status, Numbers numbers) {
  return status ? Result<Numbers>(std::move(numbers)) : fail(std::move(status).error());
}

tl::unexpected<Error> wrong_type(std::string_view what, DType dtype) {
  return fail(ErrorCode::kUnsupported, "its " + std::string(what) + " are " +
                                           std::string(torch_name(dtype)) + ", which is not read");
}

}  // namespace

Result<Numbers> scale_numbers(double scale) {
  Numbers out;
  auto status = add_scale(scale, out);
  return finished(std::move(status), std::move(out));
}

Result<Numbers> scale_numbers(const Numbers& scales) {
  Numbers out;
  const auto add = [&](auto scale) { return add_scale(scale, out); };
  Status status;
  if (scales.dtype == DType::kFloat64) {
    status = for_each<double>(scales.bytes, add);
  } else if (scales.dtype == DType::kFloat32) {
    status = for_each<float>(scales.bytes, add);
  } else {
    status = wrong_type("scales", scales.dtype);
  }
  return finished(std::move(status), std::move(out));
}

Result<Numbers> zero_point_numbers(std::int64_t zero_point, DType integers) {
  Numbers out{.dtype = integers, .bytes = {}};
  auto status = add_zero_point(zero_point, out);
  return finished(std::move(status), std::move(out));
}

Result<Numbers> zero_point_numbers(const Numbers& zero_points, DType integers) {
  Numbers out{.dtype = integers, .bytes = {}};
  const auto add = [&](auto zero_point) { return add_zero_point(zero_point, out); };
  Status status;
  if (zero_points.dtype == DType::kFloat32 || zero_points.dtype == DType::kFloat64) {
    out = zero_points;
  } else if (zero_points.dtype == DType::kInt64) {
    status = for_each<std::int64_t>(zero_points.bytes, add);
  } else if (zero_points.dtype == DType::kInt32) {
    status = for_each<std::int32_t>(zero_points.bytes, add);
  } else {
    status = wrong_type("zero points", zero_points.dtype);
  }
  return finished(std::move(status), std::move(out));
}

Numbers axis_number(std::int64_t axis) {
  Numbers out{.dtype = DType::kInt64, .bytes = {}};
  append(out.bytes, axis);
  return out;
}

}  // namespace onnx_external
