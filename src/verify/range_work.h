// Cuts ranges that are checked into units of work for threads.
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
  std::uint64_t first = 0;  // from the start of the range
  std::uint64_t length = 0;
};

// The unit of work of a thread: one chunk, or some rows of the parts of a matrix.
struct CheckTask {
  std::size_t chunk = 0;   // the first
  std::size_t chunks = 1;  // parts
};

struct CheckWork {
  std::vector<CheckChunk> chunks;
  std::vector<CheckTask> tasks;
};

// The files whose different ranges sum to far more than the file has.
[[nodiscard]] std::set<std::string_view> overused_files(const Directory& folder,
                                                        std::span<const RangeCheck> checks);

// Chunks of one check come in order. `skipped`: files whose ranges are not read. `checkpoint`: as
// for check_ranges().
[[nodiscard]] CheckWork cut_checks(const Directory& folder, std::span<const RangeCheck> checks,
                                   const Checkpoint* checkpoint, const VerifyOptions& options,
                                   const std::set<std::string_view>& skipped);

}  // namespace onnx_external
