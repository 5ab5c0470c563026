#include "base/progress_meter.h"

namespace onnx_external {

void ProgressMeter::begin(Phase phase, std::uint64_t bytes_total) {
  phase_ = phase;
  total_ = bytes_total;
  done_ = 0;
  next_report_ = Clock::now();
}

bool ProgressMeter::add(std::uint64_t bytes) {
  done_ += bytes;
  if (report_) {
    // If the lock is taken, its holder does the report.
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && Clock::now() >= next_report_) {
      report_locked();
    }
  }
  return !cancelled_;
}

Status ProgressMeter::finish() {
  if (report_ && !cancelled_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    report_locked();
  }
  return cancelled_ ? Status(cancelled()) : Status();
}

void ProgressMeter::report_locked() {
  next_report_ = Clock::now() + kProgressInterval;
  if (cancelled_ || report_(Progress{phase_, done_, total_}) == Continue::kCancel) {
    cancelled_ = true;
  }
}

}  // namespace onnx_external
