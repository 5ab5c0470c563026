// How long work reports itself.
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_external {

// kCompare: tensors that could be equal are compared (Dedup::kContent).
enum class Phase { kCopy, kSync, kVerify, kCompare };

struct Progress {
  Phase phase = Phase::kCopy;
  std::uint64_t bytes_done = 0;   // of this phase; never falls within one phase
  std::uint64_t bytes_total = 0;  // of this phase
};

enum class Continue { kYes, kCancel };

// Called from one thread at a time (calls are serialized, but may come from different threads),
// at most about ten times a second and once at the end of each phase. Answering kCancel stops the
// work: everything half-written is removed and the call returns ErrorCode::kCancelled. An empty
// function is fine. Must not throw.
using ProgressFn = std::function<Continue(const Progress&)>;

}  // namespace onnx_external
