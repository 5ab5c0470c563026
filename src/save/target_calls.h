// Checks before a save begins whether the target's file system does what publishing needs.
#pragma once

#include "base/directory.h"
#include "onnx_external/result.h"
#include "save/staging.h"

namespace onnx_external {

// Renames an empty file from the staging folder into the output folder, as publishing will, and
// over another one if the save may replace files; waits for the disk if there is much to copy.
// Buckets that are mounted as file systems cannot do some of this. Errors: kIo.
[[nodiscard]] Status check_target_calls(const Directory& out, const Directory& staging,
                                        const TransactionOptions& options);

}  // namespace onnx_external
