// Determines which ranges of a plan were already written by a killed save.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/directory.h"
#include "base/progress_meter.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// For each range in SavePlan::ranges, its CRC-32 if the range is written, otherwise nullopt.
using WrittenRanges = std::vector<std::optional<std::uint32_t>>;

// Returns the ranges in `claimed` whose bytes on the disk have the claimed CRC-32. Their files are
// synced, if the options ask for it, and read again, from the disk if the kernel drops its cache.
// Files without a valid range are removed, so that they can be written as in a first run. If a sync
// fails, the whole file counts as not written, because a second sync could succeed although the
// bytes are not on the disk. Fails if a file cannot be removed, or if the progress callback
// cancels.
[[nodiscard]] Result<WrittenRanges> sound_ranges(const SavePlan& plan, const Directory& data,
                                                 WrittenRanges claimed, const WriteOptions& options,
                                                 ProgressMeter& meter);

[[nodiscard]] std::uint64_t bytes_of(const SavePlan& plan, const WrittenRanges& written);

}  // namespace onnx_external
