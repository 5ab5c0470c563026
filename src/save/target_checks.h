// Checks before a save begins whether the target has room for it, and whether its file system does
// what publishing needs.
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
  std::vector<std::string> names;  // of what comes beside the data files
  std::uint64_t bytes_there = 0;   // of `files`, on the disk already, or holes
  std::string folder = {};         // that the files lie in; empty: beside the model
};

// The disk space of those files that exist, counting at most their planned bytes.
[[nodiscard]] std::uint64_t allocated_bytes(const Directory& data,
                                            const std::vector<PlannedFile>& files);

// Refuses names and paths that are too long for the file system, files that are larger than it or
// the limit of the process allows, and more bytes than are free. Limits that the file system does
// not report are not checked. kIo; the message says how much is needed and how much there is.
[[nodiscard]] Status check_target_limits(const Directory& out, const TargetNeeds& needs);

// Renames an empty file from the staging folder into the output folder, as publishing will, and
// over another one if the save may replace files; waits for the disk if there is much to copy.
// Buckets that are mounted as file systems cannot do some of this. Errors: kIo.
[[nodiscard]] Status check_target_calls(const Directory& out, const Directory& staging,
                                        const TransactionOptions& options);

}  // namespace onnx_external
