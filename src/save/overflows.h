// Counts finite values that became infinite in a conversion.
#pragma once

#include <cstddef>
#include <map>
#include <span>

#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Returns whether a tensor is converted to a type in which its values may be too large.
[[nodiscard]] bool may_overflow(const Checkpoint& checkpoint, const PlannedTensor& tensor);

// Returns whether one of the elements is infinite. Requires: can_cast_to(dtype); whole elements.
[[nodiscard]] bool has_infinity(DType dtype, std::span<const std::byte> elements);

// Counts the finite values that became infinite in converted tensors. Reads only tensors whose
// range contains an infinity, and tensors without a range. The keys of the result are indices into
// SavePlan::tensors; tensors without overflow are left out.
[[nodiscard]] Result<std::map<std::size_t, Overflow>> find_overflows(
    const SavePlan& plan, const Checkpoint& checkpoint, const std::vector<bool>& infinite_ranges);

}  // namespace onnx_external
