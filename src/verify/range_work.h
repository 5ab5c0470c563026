// Splits the ranges that the verifier checks into tasks for threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/verify.h"
#include "verify/range_check.h"

namespace onnx_external {

struct CheckChunk {
  std::size_t check = 0;
  std::uint64_t first = 0;  // offset from the start of the range
  std::uint64_t length = 0;
};

// A task for a thread, which is one chunk, or some rows of all parts of a matrix.
struct CheckTask {
  std::size_t chunk = 0;   // index of the first chunk
  std::size_t chunks = 1;  // number of chunks; for a matrix, one for each part
};

struct CheckWork {
  std::vector<CheckChunk> chunks;
  std::vector<CheckTask> tasks;
};

// Returns the files whose distinct ranges together are far larger than the file.
[[nodiscard]] std::set<std::string_view> overused_files(const Directory& folder,
                                                        std::span<const RangeCheck> checks);

// Splits the checks. The chunks of one check are in order. Ranges in the files `skipped` are not
// read. `checkpoint` is that of check_ranges().
[[nodiscard]] CheckWork cut_checks(const Directory& folder, std::span<const RangeCheck> checks,
                                   const Checkpoint* checkpoint, const VerifyOptions& options,
                                   const std::set<std::string_view>& skipped);

}  // namespace onnx_external
