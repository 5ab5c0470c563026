// Chooses the names of a plan's data files, and the file and offset of each data range.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills in the files, the positions of all ranges, and the members `bytes` and `oversized`. A pure
// function. Errors as for make_plan(). Requires: the ranges are in the order in which they will be
// laid out.
[[nodiscard]] Status lay_out(SavePlan& plan, const PlanOptions& options);

// Fails with kInvalidArgument if data files next to a model of this name would have unsafe names.
[[nodiscard]] Status check_data_file_names(std::string_view model_name, std::string_view data_dir,
                                           std::string_view data_name);

// Fails with kInvalidArgument for values that are out of range.
[[nodiscard]] Status check_layout_options(const PlanOptions& options);

// Returns the offset of a range of `bytes` bytes that is appended to a file of `used` bytes.
// Returns nullopt if the file would become too large, so that the range must be in a new file. For
// kSingle and kShards.
[[nodiscard]] Result<std::optional<std::uint64_t>> offset_behind(std::uint64_t used,
                                                                 std::uint64_t bytes,
                                                                 const PlanOptions& options);

}  // namespace onnx_external
