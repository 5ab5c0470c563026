// Lays out the ranges of a plan: chooses the names of data files, and the offsets in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fills in files, the places of all ranges, bytes and oversized. The ranges must be in the order in
// which they will be laid out. Pure. Errors as make_plan().
[[nodiscard]] Status lay_out(SavePlan& plan, const PlanOptions& options);

// kInvalidArgument if the data files beside a model of that name would have unsafe names.
[[nodiscard]] Status check_data_file_names(std::string_view model_name, std::string_view data_dir,
                                           std::string_view data_name);

// kInvalidArgument for numbers out of range.
[[nodiscard]] Status check_layout_options(const PlanOptions& options);

// Returns the offset of a range of `bytes` bytes in a file that has `used` bytes; nullopt if the
// file would grow too large, so that the range begins another one. For kSingle and kShards.
[[nodiscard]] Result<std::optional<std::uint64_t>> offset_behind(std::uint64_t used,
                                                                 std::uint64_t bytes,
                                                                 const PlanOptions& options);

}  // namespace onnx_external
