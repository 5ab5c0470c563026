// Counts finished bytes from many threads and calls a ProgressFn from one thread at a time, at most
// every kProgressInterval.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "onnx_external/progress.h"
#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr std::chrono::milliseconds kProgressInterval{100};

[[nodiscard]] inline tl::unexpected<Error> cancelled() {
  return fail(ErrorCode::kCancelled, "cancelled");
}

// Counts finished bytes and reports progress. add() may be called from any thread. begin() and
// finish() may be called only while no other thread calls add().
class ProgressMeter {
 public:
  // `report` may be empty, and must outlive the meter.
  explicit ProgressMeter(const ProgressFn& report) : report_(report) {}

  void begin(Phase phase, std::uint64_t bytes_total);

  // Adds to the number of finished bytes. Returns false once the callback has asked to stop.
  [[nodiscard]] bool add(std::uint64_t bytes);

  // Works like add(), but returns kCancelled instead of false, for use with TRY.
  [[nodiscard]] Status step(std::uint64_t bytes) { return add(bytes) ? Status() : cancelled(); }

  [[nodiscard]] Phase phase() const { return phase_; }

  // Reports the end of the phase. Fails with kCancelled if the callback asks to stop or has done so
  // before.
  [[nodiscard]] Status finish();

 private:
  using Clock = std::chrono::steady_clock;
  void report_locked();

  const ProgressFn& report_;
  Phase phase_ = Phase::kCopy;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  Clock::time_point next_report_;
};

}  // namespace onnx_external
