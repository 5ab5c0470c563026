// Going on where a killed save stopped: which of its bytes are kept.
#pragma once

#include "base/directory.h"
#include "base/progress_meter.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/journal.h"

namespace onnx_external {

// Of the parts that a journal claims, those that are as it claims: their files are synced (if
// asked) and read again, from the disk where the kernel lets go of them. All other claims are
// dropped, and files without a part that is kept are removed, so that every other part can be
// written as in a first run. A sync that fails costs the whole file: a second one could succeed
// without the bytes. Fails when a file cannot be removed, or the progress callback cancels.
[[nodiscard]] Result<WrittenParts> keep_written(const SavePlan& plan, const Directory& data,
                                                WrittenParts claimed, const WriteOptions& options,
                                                ProgressMeter& meter);

[[nodiscard]] std::uint64_t bytes_of(const SavePlan& plan, const WrittenParts& written);

}  // namespace onnx_external
