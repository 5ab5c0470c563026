// Chooses the names of a plan's data files, and the file and offset of each data range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::size_t kMaxDataFileNameBytes = 200;

// Returns whether the name is a valid file name on every common system. Such a name has only the
// characters [A-Za-z0-9._-] and at most kMaxDataFileNameBytes bytes, no "..", and no dot at the
// start or the end. It must not be a Windows device name, the name of the manifest, or of the form
// that hashed_file_name() returns.
[[nodiscard]] bool is_safe_file_name(std::string_view name);

// Returns "<escaped and shortened name>-<16 hex digits of the name's SHA-256>".
[[nodiscard]] std::string hashed_file_name(std::string_view name);

// Returns the file name for a tensor that is written before the names of all tensors are known. The
// result does not depend on other names: it is the name itself if this is safe and has no
// upper-case letters, otherwise hashed_file_name(). The file names are distinct even on a
// case-insensitive file system.
[[nodiscard]] std::string streamed_file_name(std::string_view name);

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
