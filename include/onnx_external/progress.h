// Defines the callback through which long-running work reports its progress and can be cancelled.
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_external {

// The phases of a save. In kCompare, tensors that may have equal bytes are compared
// (Dedup::kContent).
enum class Phase { kCopy, kSync, kVerify, kCompare };

struct Progress {
  Phase phase = Phase::kCopy;
  std::uint64_t bytes_done = 0;   // bytes done in this phase; never decreases within a phase
  std::uint64_t bytes_total = 0;  // of this phase
};

enum class Continue { kYes, kCancel };

// A function that receives the progress. It is called at most about ten times a second, and once at
// the end of each phase. Calls are serialized, but may come from different threads. If it returns
// kCancel, the work stops: everything that was written is removed, and the operation fails with
// ErrorCode::kCancelled. It may be empty, and must not throw.
using ProgressFn = std::function<Continue(const Progress&)>;

}  // namespace onnx_external
