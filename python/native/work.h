// Long work beside a Python thread that stays responsive.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

#include "onnx_external/progress.h"

namespace onnx_external::python {

// Runs `work` on a thread of its own, without the GIL, and waits for it. Meanwhile the calling
// thread calls `progress` (a callable or None) with (phase, bytes done, bytes in all), at most
// about twenty times a second, and lets Python handle its signals. If either raises (Ctrl-C), the
// work is told to stop, and the exception is thrown once it has: nothing half-written stays. The
// thread has ended when this returns, so that a process may fork before and after.
void run_work(nanobind::handle progress, const std::function<void(const ProgressFn&)>& work);

}  // namespace onnx_external::python
