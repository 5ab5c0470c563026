// Runs long work while the Python thread that started it stays responsive to signals.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

#include "onnx_external/progress.h"

namespace onnx_external::python {

// Runs `work` on a thread of its own, without the GIL, and waits for it. Meanwhile, the calling
// thread calls `progress` (a callable or None) with (phase, bytes done, total bytes), at most about
// twenty times per second, and lets Python handle its signals. If `progress` or a signal handler
// raises (Ctrl-C), the work is told to stop, and once it has stopped, the exception is thrown;
// nothing half-written is left. The thread has ended when this function returns, so the process may
// fork before and after the call.
void run_work(nanobind::handle progress, const std::function<void(const ProgressFn&)>& work);

}  // namespace onnx_external::python
