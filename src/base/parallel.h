// The only file with OpenMP: loops whose steps may fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
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

// Calls step(index, thread) for every index in [0, count) on up to `threads` threads, lowest index
// first; thread is in [0, threads). Returns the error of the lowest failing index, so the message
// is the same in every run: a failure stops only the indices above it. Exceptions become errors
// here (one that left an OpenMP region would end the process).
template <typename Step>
[[nodiscard]] Status parallel_for(std::size_t count, int threads, const Step& step) {
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> lowest_failure{std::numeric_limits<std::size_t>::max()};
  std::optional<Error> error;
  std::mutex error_mutex;
  auto guarded = [&](std::size_t index, int thread) -> Status {
    try {
      return step(index, thread);
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::kIo, "out of memory");
    } catch (const std::exception& e) {
      return fail(ErrorCode::kIo, std::string("unexpected: ") + e.what());
    }
  };
  auto work = [&](int thread) {
    for (std::size_t index = next++; index < count; index = next++) {
      if (index > lowest_failure.load()) {
        return;
      }
      Status status = guarded(index, thread);
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
  if (error) {
    return fail(*std::move(error));
  }
  return {};
}

}  // namespace onnx_external
