// Adds and multiplies integers with overflow detection. Every size and offset from a file is
// computed with these functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace onnx_external {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T result{};
  if (__builtin_add_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T result{};
  if (__builtin_mul_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

// Returns whether [offset, offset + length) is inside [0, size). The computation cannot overflow.
[[nodiscard]] constexpr bool range_fits(std::uint64_t offset, std::uint64_t length,
                                        std::uint64_t size) {
  return offset <= size && length <= size - offset;
}

}  // namespace onnx_external
