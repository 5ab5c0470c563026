// Defines the callback through which long-running work reports its progress and can be cancelled.
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_external {

// kCompare: tensors that may be equal are compared (Dedup::kContent).
enum class Phase { kCopy, kSync, kVerify, kCompare };

struct Progress {
  Phase phase = Phase::kCopy;
  std::uint64_t bytes_done = 0;   // bytes done in this phase; never decreases within a phase
  std::uint64_t bytes_total = 0;  // of this phase
};

enum class Continue { kYes, kCancel };

// Called from one thread at a time (calls are serialized, but may come from different threads), at
// most about ten times a second and once at the end of each phase. Returning kCancel stops the
// work: everything that was written is removed and the call fails with ErrorCode::kCancelled. The
// function may be empty; it must not throw.
using ProgressFn = std::function<Continue(const Progress&)>;

}  // namespace onnx_external
