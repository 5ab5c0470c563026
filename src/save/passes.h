// Passes: reading a tensor once may make several data ranges, the parts of a quantized matrix.
// Their places are fixed by the plan as those of all ranges are. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "onnx_external/plan.h"

namespace onnx_external {

// The tensor that is written to a range.
[[nodiscard]] inline const PlannedTensor& tensor_of(const SavePlan& plan, std::uint32_t range) {
  return plan.tensors[plan.ranges[range].source_tensor];
}

// The range whose pass makes this one: itself, or the codes of the same matrix before it.
[[nodiscard]] inline std::uint32_t head_of_pass(const SavePlan& plan, std::uint32_t range) {
  const auto& packed = tensor_of(plan, range).packed;
  return packed ? range - static_cast<std::uint32_t>(packed->part) : range;
}

// How many ranges the pass of a head makes, itself included.
[[nodiscard]] inline std::size_t ranges_of_pass(const SavePlan& plan, std::uint32_t head) {
  std::size_t count = 1;
  while (tensor_of(plan, head).packed && head + count < plan.ranges.size()) {
    const auto& next = tensor_of(plan, head + static_cast<std::uint32_t>(count)).packed;
    if (!next || static_cast<std::size_t>(next->part) != count) {
      break;
    }
    ++count;
  }
  return count;
}

}  // namespace onnx_external
