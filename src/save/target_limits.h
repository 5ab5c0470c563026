// What can be known before a save begins of whether the target has room for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/directory.h"
#include "onnx_external/plan.h"
#include "onnx_external/result.h"

namespace onnx_external {

struct TargetNeeds {
  const std::vector<PlannedFile>& files;
  std::vector<std::string> names;  // of what comes beside the data files
  std::uint64_t bytes_there = 0;   // of `files`, on the disk already, or holes
  std::string folder = {};         // that the files stand in; empty: beside the model
};

// The disk space that those of the files which exist take, at most their planned bytes.
[[nodiscard]] std::uint64_t allocated_bytes(const Directory& data,
                                            const std::vector<PlannedFile>& files);

// Names and paths that are too long for the file system, files that are larger than it, or the
// process's limit, allows, more bytes than are free. A file system that does not tell is not asked.
// kIo; the message says how much is needed and how much there is.
[[nodiscard]] Status check_target_limits(const Directory& out, const TargetNeeds& needs);

}  // namespace onnx_external
