// Reads byte ranges that may begin or end inside an element, by calling a function that can read
// only whole elements.
#pragma once

#include <cstdint>

#include "tensor/strided_gather.h"

namespace onnx_external {

inline constexpr std::size_t kMaxElementBytes = 16;

// Fills `out` with the bytes from `first` on of a sequence of elements of `unit` bytes each.
// `read_whole` is called with offsets and lengths that are multiples of `unit`, within the smallest
// range of whole elements that covers `out`. Requires: 1 <= unit <= kMaxElementBytes.
[[nodiscard]] Status read_whole_elements(std::uint32_t unit, std::uint64_t first,
                                         std::span<std::byte> out, const ReadSource& read_whole);

}  // namespace onnx_external
