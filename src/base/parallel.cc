#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/remedy.h"

namespace onnx_external {
namespace {

Error out_of_memory() noexcept {
  try {
    return error_with(ErrorCode::kIo, kOutOfMemory, {{"threads", "1", "takes less"}});
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kIo, "out of memory"};  // short enough to need no allocation
  }
}

// Allocators give each thread a large region of its own. Under a limit on address space, a new
// thread may get none although the running ones have theirs.
bool thread_has_memory() noexcept {
  try {
    ::operator delete(::operator new(1));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&set));
}

int thread_count(int requested) {
  return requested > 0 ? requested : available_threads();
}

Error error_in_flight() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    try {
      return {ErrorCode::kIo, std::string("unexpected: ") + error.what()};
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    }
  } catch (...) {
    return {ErrorCode::kIo, "unexpected"};
  }
}

void run_team(int threads, const std::function<void(int)>& work) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<std::size_t>(std::max(threads, 1) - 1));
    for (int thread = 1; thread < threads; ++thread) {
      others.emplace_back([&work, thread] {
        if (thread_has_memory()) {
          work(thread);
        }
      });
    }
  } catch (const std::exception&) {  // there are no more threads, or no memory for one
  }
  work(0);
  for (std::thread& other : others) {
    other.join();
  }
}

}  // namespace onnx_external
