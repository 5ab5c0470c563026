// Runs parallel loops whose steps may fail. No other code of the library starts threads. The
// threads are OpenMP threads, or C++ threads in a build without OpenMP (ONNX_EXTERNAL_OPENMP). If a
// limit on processes or memory prevents the start of more threads, fewer threads do the work. All
// threads have ended when a function returns, so the process may fork between two calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external {

inline constexpr int kMaxThreads = 1024;

// Returns the number of CPUs in the affinity mask of this process, at least 1. With OpenMP,
// OMP_NUM_THREADS takes precedence if it is set, and the affinity mask is the one at the start of
// the process.
[[nodiscard]] int available_threads();

// Returns the name of the runtime that starts the threads, such as "OpenMP 4.5 (libgomp)" or "C++
// threads".
[[nodiscard]] std::string thread_runtime();

// Returns `requested` or, if it is 0, available_threads().
[[nodiscard]] int thread_count(int requested);

// Returns the number of threads for a loop that reads or writes `bytes` bytes. It is less than
// thread_count(requested) if starting that many threads would take longer than the work.
[[nodiscard]] int thread_count(int requested, std::uint64_t bytes);

inline constexpr const char* kOutOfMemory =
    "out of memory; raise the limit of the process (ulimit -v) or of its container";

// Converts the exception that is being handled to an error. Does not throw, even if memory runs
// out.
[[nodiscard]] Error error_in_flight() noexcept;

// Returns the result of work(). An exception is converted to an error, because an exception that
// leaves a thread would end the process.
template <typename Work>
[[nodiscard]] Status without_exceptions(const Work& work) {
  try {
    return work();
  } catch (...) {
    return fail(error_in_flight());
  }
}

// Calls work(0), work(1), ..., work(threads - 1), each on its own thread. If the system cannot
// provide all threads, fewer calls are made; work(0) is always called. Returns when all calls have
// ended. `work` must not throw.
//
// libgomp ends the process if it cannot start a thread or allocate memory for a team. To avoid
// this, the same number of plain threads is started as a test before an OpenMP region begins. If
// another process takes the last thread in the microseconds after this test, libgomp still ends the
// process, with exit code 1, and the save can be resumed like any killed save.
void run_team(int threads, const std::function<void(int)>& work);

// Calls work() on a new thread and meanwhile() on the calling thread, and returns true when both
// have ended. If no thread can be started, calls neither function and returns false. The functions
// must not throw.
[[nodiscard]] bool run_beside(const std::function<void()>& work,
                              const std::function<void()>& meanwhile);

// Works like run_team(), but uses C++ threads in every build, and runs work(0) on the calling
// thread.
void run_plain_team(int threads, const std::function<void(int)>& work);

// Implements parallel_for() and parallel_tasks(). run(threads, work) runs the team.
template <typename RunTeam, typename Step>
[[nodiscard]] Status run_steps(const RunTeam& run, std::size_t count, int threads,
                               const Step& step) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> lowest_failure{std::numeric_limits<std::size_t>::max()};
  std::optional<Error> error;
  std::mutex error_mutex;
  auto work = [&](int thread) {
    for (std::size_t index = next++; index < count; index = next++) {
      if (index > lowest_failure.load()) {
        return;
      }
      Status status = without_exceptions([&]() -> Status { return step(index, thread); });
      if (status) {
        continue;
      }
      const std::lock_guard<std::mutex> lock(error_mutex);
      if (index < lowest_failure.load()) {
        lowest_failure = index;
        error = std::move(status).error();
      }
    }
  };
  const std::size_t most = static_cast<std::size_t>(std::max(threads, 1));
  run(static_cast<int>(std::min(most, count)), std::cref(work));
  return error ? Status(fail(*std::move(error))) : Status();
}

// Calls step(index, thread) for every index in [0, count) on up to `threads` threads, lowest index
// first; thread is in [0, threads). A failure stops only higher indices, and the error of the
// lowest failing index is returned, so every run reports the same message. Exceptions become
// errors.
template <typename Step>
[[nodiscard]] Status parallel_for(std::size_t count, int threads, const Step& step) {
  return run_steps(run_team, count, threads, step);
}

// Works like parallel_for(), but uses C++ threads. Use this function for steps that are short (an
// OpenMP region takes 0.4 ms to begin and end), that wait for a disk, or that create objects which
// outlive the loop, such as open files. In an OpenMP region no step runs on the calling thread, and
// allocators reuse the memory of ended threads only after some delay, which made a linked save of
// 20,000 tensors take 7 % longer.
template <typename Step>
[[nodiscard]] Status parallel_tasks(std::size_t count, int threads, const Step& step) {
  return run_steps(run_plain_team, count, threads, step);
}

}  // namespace onnx_external
