// Splits the reading of a tensor into steps that are large enough to be fast on a disk, and small
// enough to need little memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/io_buffer.h"
#include "base/try.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The size of a step, which is a multiple of every element size.
inline constexpr std::uint64_t kReadStepBytes = std::uint64_t{1} << 20;

// Splits [0, nbytes) into steps and calls step(first, bytes) for each, in order. The function must
// read the bytes [first, first + bytes.size()) of the tensor into `bytes`, which is the start of
// `buffer`. Stops at the first error.
template <typename Step>
[[nodiscard]] Status for_each_step(std::uint64_t nbytes, IoBuffer& buffer, const Step& step) {
  for (std::uint64_t first = 0; first < nbytes; first += kReadStepBytes) {
    const std::span<std::byte> bytes = buffer.first(std::min(kReadStepBytes, nbytes - first));
    TRY(step(first, bytes));
  }
  return {};
}

}  // namespace onnx_external
