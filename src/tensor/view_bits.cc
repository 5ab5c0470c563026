#include "tensor/view_bits.h"

namespace onnx_external {
namespace {

bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

bool is_signed_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

// The sign is the top bit of a number's last byte.
void flip_signs(std::span<std::byte> bytes, std::size_t first, std::size_t step) {
  for (std::size_t at = first; at < bytes.size(); at += step) {
    bytes[at] ^= std::byte{0x80};
  }
}

}  // namespace

bool has_view_bits(DType dtype, bool conj, bool neg) {
  return (!conj || is_complex(dtype)) && (!neg || is_complex(dtype) || is_signed_float(dtype));
}

void apply_view_bits(DType dtype, bool conj, bool neg, std::span<std::byte> elements) {
  const std::size_t element = byte_size(dtype);
  const std::size_t number = is_complex(dtype) ? element / 2 : element;
  if (neg) {
    flip_signs(elements, number - 1, number);
  }
  if (conj) {
    flip_signs(elements, element - 1, element);
  }
}

}  // namespace onnx_external
