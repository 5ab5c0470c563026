// Finds out which parts of a plan a killed save has already written.
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

// Index = SavePlan::parts: the CRC-32 of the part where it is written.
using WrittenParts = std::vector<std::optional<std::uint32_t>>;

// Returns the claimed parts whose bytes on the disk have the claimed CRC-32. Their files are synced
// (if the options say so) and read again, from the disk where the kernel drops its cache. Files
// without a sound part are removed, so that all other parts can be written as in a first run. If a
// sync fails, the whole file counts as lost, because a second sync could succeed without the bytes.
// Fails when a file cannot be removed, or the progress callback cancels.
[[nodiscard]] Result<WrittenParts> sound_parts(const SavePlan& plan, const Directory& data,
                                               WrittenParts claimed, const WriteOptions& options,
                                               ProgressMeter& meter);

[[nodiscard]] std::uint64_t bytes_of(const SavePlan& plan, const WrittenParts& written);

}  // namespace onnx_external
