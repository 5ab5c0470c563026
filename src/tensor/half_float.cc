#include "tensor/half_float.h"

#include <cstring>

namespace onnx_external {
void widen_halves_in_place(std::span<std::byte> bytes) {
  const std::size_t count = bytes.size() / sizeof(float);
  const std::byte* halves = bytes.data() + count * sizeof(std::uint16_t);
  for (std::size_t i = 0; i < count; ++i) {  // float i ends before half i + 1 begins
    std::uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof(half), sizeof(half));
    const std::uint32_t bits = float_bits_of_half(half);
    std::memcpy(bytes.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace onnx_external
