// The only file with OpenMP: loops whose steps may fail, and two works at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "onnx_external/result.h"

namespace onnx_external {

// One per CPU that this process may use (its affinity mask), at least 1.
[[nodiscard]] int available_threads();

// `requested` or, when it is 0, available_threads().
[[nodiscard]] int thread_count(int requested);

// What work() returns; an exception becomes an error (one that left an OpenMP region would end the
// process).
template <typename Work>
[[nodiscard]] Status without_exceptions(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kIo, "out of memory");
  } catch (const std::exception& e) {
    return fail(ErrorCode::kIo, std::string("unexpected: ") + e.what());
  }
}

// Calls `own` on this thread and, with two threads or more, `other` on a new one at the same time:
// what `own` frees is this thread's again, and calls may be nested. Without a second thread `other`
// comes first, so `own` may wait for what it does. Both are called in any case; the error of `own`
// wins.
template <typename Own, typename Other>
[[nodiscard]] Status parallel_both(int threads, const Own& own, const Other& other) {
  const auto guarded = [&other] { return without_exceptions(other); };
  std::future<Status> beside;
  if (threads > 1) {
    try {
      beside = std::async(std::launch::async, guarded);
    } catch (const std::exception&) {  // no thread is to be had
    }
  }
  Status others;
  if (!beside.valid()) {
    others = guarded();
  }
  const Status mine = without_exceptions(own);
  if (beside.valid()) {
    others = beside.get();
  }
  return mine ? others : mine;
}

// Calls step(index, thread) for every index in [0, count) on up to `threads` threads, lowest index
// first; thread is in [0, threads). Returns the error of the lowest failing index, so the message
// is the same in every run: a failure stops only the indices above it. Exceptions become errors.
// This thread first calls own(), while the others begin with the steps: its error comes first.
template <typename Step, typename Own>
[[nodiscard]] Status parallel_for(std::size_t count, int threads, const Step& step,
                                  const Own& own) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> lowest_failure{std::numeric_limits<std::size_t>::max()};
  std::optional<Error> error;
  std::mutex error_mutex;
  Status own_status;
  auto work = [&](int thread) {
    if (thread == 0) {
      own_status = without_exceptions(own);
      if (!own_status) {
        lowest_failure = 0;
      }
    }
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
  const int team = threads < 1 ? 1 : threads;
  if (team == 1 || count <= 1) {
    work(0);
  } else {
#pragma omp parallel for num_threads(team) schedule(static, 1)
    for (int thread = 0; thread < team; ++thread) {
      work(thread);
    }
  }
  if (own_status && error) {
    return fail(*std::move(error));
  }
  return own_status;
}

template <typename Step>
[[nodiscard]] Status parallel_for(std::size_t count, int threads, const Step& step) {
  return parallel_for(count, threads, step, [] { return Status(); });
}

}  // namespace onnx_external
