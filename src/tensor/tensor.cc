#include "onnx_external/tensor.h"

#include <algorithm>
#include <limits>

#include "base/checked_math.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr auto kMaxBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

tl::unexpected<Error> too_large(std::span<const std::int64_t> shape) {
  return fail(ErrorCode::kCorrupt, "shape " + shape_text(shape) + " is too large");
}

Result<std::uint64_t> bounded_product(std::uint64_t a, std::uint64_t b,
                                      std::span<const std::int64_t> shape) {
  const auto product = checked_mul(a, b);
  if (!product || *product > kMaxBytes) {
    return too_large(shape);
  }
  return *product;
}

Result<std::uint64_t> bytes_of_elements(std::uint64_t count, DType dtype,
                                        std::span<const std::int64_t> shape) {
  constexpr std::uint64_t kByte = 8;
  const std::uint64_t in_a_byte = kByte / std::min<std::uint64_t>(kByte, bit_size(dtype));
  const std::uint64_t elements = count / in_a_byte + (count % in_a_byte == 0 ? 0 : 1);
  return bounded_product(elements, byte_size(dtype), shape);
}

}  // namespace

Result<std::uint64_t> element_count(std::span<const std::int64_t> shape) {
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) {
      return fail(ErrorCode::kCorrupt, "shape " + shape_text(shape) + " has a negative dimension");
    }
    empty = empty || dim == 0;
  }
  if (empty) {
    return 0;
  }
  std::uint64_t count = 1;
  for (const std::int64_t dim : shape) {
    TRY_ASSIGN(auto product, bounded_product(count, static_cast<std::uint64_t>(dim), shape));
    count = product;
  }
  return count;
}

Result<std::uint64_t> contiguous_nbytes(DType dtype, std::span<const std::int64_t> shape) {
  TRY_ASSIGN(auto count, element_count(shape));
  return bytes_of_elements(count, dtype, shape);
}

std::vector<std::int64_t> contiguous_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    // The other dimensions of an empty tensor may have any size; its strides never matter.
    step = checked_mul(step, shape[i] > 0 ? shape[i] : 1).value_or(1);
  }
  return strides;
}

bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::int64_t step = 1;
  bool contiguous = true;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) {
      return true;
    }
    if (shape[i] == 1) {
      continue;
    }
    contiguous = contiguous && strides[i] == step;
    step = checked_mul(step, shape[i]).value_or(0);
  }
  return contiguous;
}

Result<std::uint64_t> extent_bytes(DType dtype, std::span<const std::int64_t> shape,
                                   std::span<const std::int64_t> strides) {
  if (shape.size() != strides.size()) {
    return fail(ErrorCode::kCorrupt, "shape " + shape_text(shape) + " and strides " +
                                         shape_text(strides) + " differ in length");
  }
  auto count = element_count(shape);
  if (!count || *count == 0) {
    return count;
  }
  std::uint64_t last = 0;  // index of the furthest element
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0) {
      return fail(ErrorCode::kCorrupt, "strides " + shape_text(strides) + " have a negative one");
    }
    const auto reach = checked_mul(static_cast<std::uint64_t>(shape[i] - 1),
                                   static_cast<std::uint64_t>(strides[i]));
    const auto sum = reach ? checked_add(last, *reach) : std::nullopt;
    if (!sum || *sum >= kMaxBytes) {
      return too_large(shape);
    }
    last = *sum;
  }
  return bytes_of_elements(last + 1, dtype, shape);
}

Result<Shape> onnx_shape(DType dtype, std::span<const std::int64_t> shape) {
  Shape result(shape.begin(), shape.end());
  if (dtype != DType::kFloat4E2M1FnX2) {
    return result;
  }
  if (result.empty()) {
    return fail(ErrorCode::kUnsupported,
                "a float4_e2m1fn_x2 scalar contains two values and has no ONNX shape");
  }
  const auto doubled = checked_mul(result.back(), std::int64_t{2});
  if (!doubled) {
    return too_large(shape);
  }
  result.back() = *doubled;
  return result;
}

Result<std::uint64_t> onnx_nbytes(std::int32_t data_type, std::span<const std::int64_t> dims) {
  const std::uint32_t bits = onnx_bits(data_type);
  if (bits == 0) {
    return fail(ErrorCode::kUnsupported, "element type " + std::string(onnx_type_name(data_type)) +
                                             " (" + std::to_string(data_type) +
                                             ") has no fixed size");
  }
  TRY_ASSIGN(auto count, element_count(dims));
  if (bits >= 8) {
    return bounded_product(count, bits / 8, dims);
  }
  const std::uint64_t per_byte = 8 / bits;
  return count / per_byte + (count % per_byte == 0 ? 0 : 1);
}

// More dimensions than any library allows; a hostile file may state millions.
constexpr std::size_t kMaxListedDims = 64;

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i == kMaxListedDims) {
      return text + ", ...]";
    }
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace onnx_external
