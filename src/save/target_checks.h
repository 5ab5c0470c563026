// Checks, before a save begins, whether the target has room for it, and whether its file system
// supports what publishing needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"
#include "save/staging.h"

namespace onnx_external {

struct TargetNeeds {
  const std::vector<PlannedFile>& files;
  std::vector<std::string> names;  // of files other than data files
  std::uint64_t bytes_there = 0;   // bytes of `files` that are already on the disk, or are holes
  std::string folder = {};         // the folder for `files`; empty if they are next to the model
};

// Returns the disk space of the files that exist, counting at most their planned bytes.
[[nodiscard]] std::uint64_t allocated_bytes(const Directory& data,
                                            const std::vector<PlannedFile>& files);

// Rejects names and paths that are too long for the file system, files that are larger than the
// file system or the process limit allows, and saves that need more bytes than are free. Limits
// that the file system does not report are not checked. Errors: kIo; the message says how much is
// needed and how much is available.
[[nodiscard]] Status check_target_limits(const Directory& out, const TargetNeeds& needs);

// Renames an empty file from the staging folder into the output folder, as publishing will, and
// over another file if the save may replace files. If there is much to copy, also syncs. Storage
// buckets that are mounted as file systems do not support some of these calls. Errors: kIo.
[[nodiscard]] Status check_target_calls(const Directory& out, const Directory& staging,
                                        const TransactionOptions& options);

}  // namespace onnx_external
