#include "native/work.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/parallel.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

// The longest time that may pass before the interpreter notices Ctrl-C.
constexpr std::chrono::milliseconds kTick{50};

// The state that the caller's thread and the working thread share.
class Shared {
 public:
  Continue report(const Progress& progress) {
    const std::lock_guard lock(mutex_);
    latest_ = progress;
    return stop_ ? Continue::kCancel : Continue::kYes;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  // Waits for a tick, or until the work is done. Returns whether it is done.
  bool wait(std::optional<Progress>& latest) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTick, [&] { return done_; });
    latest = std::exchange(latest_, std::nullopt);
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Progress> latest_;
  bool stop_ = false;
  bool done_ = false;
};

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kCopy:
      return "copy";
    case Phase::kSync:
      return "sync";
    case Phase::kVerify:
      return "verify";
    case Phase::kCompare:
      return "compare";
  }
  return "";
}

// Calls `progress` and lets Python handle its signals between two ticks. Needs the GIL.
void attend(nb::handle progress, const std::optional<Progress>& latest) {
  if (PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
  if (latest && !progress.is_none()) {
    progress(phase_name(latest->phase), latest->bytes_done, latest->bytes_total);
  }
}

}  // namespace

void run_work(nb::handle progress, const std::function<void(const ProgressFn&)>& work) {
  Shared shared;
  std::exception_ptr failure;  // of the work, if memory runs out
  std::exception_ptr pending;  // of Python; ends the work
  // Called on this thread between two ticks, or during the work if this thread does the work
  // itself.
  const auto look = [&](const std::optional<Progress>& latest) {
    const nb::gil_scoped_acquire held;
    try {
      if (!pending) {
        attend(progress, latest);
      }
    } catch (...) {
      pending = std::current_exception();
      shared.stop();
    }
  };
  const auto run = [&](const ProgressFn& report) {
    try {
      work(report);
    } catch (...) {
      failure = std::current_exception();
    }
    shared.finish();
  };
  {
    const nb::gil_scoped_release released;
    const bool has_thread =
        run_beside([&] { run([&](const Progress& at) { return shared.report(at); }); },
                   [&] {
                     std::optional<Progress> latest;
                     for (bool done = false; !done;) {
                       done = shared.wait(latest);
                       look(latest);
                     }
                   });
    if (!has_thread) {
      run([&](const Progress& at) {
        look(at);
        return shared.report(at);
      });
    }
  }
  if (pending) {
    std::rethrow_exception(pending);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace onnx_external::python
