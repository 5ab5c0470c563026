#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/remedy.h"

#ifdef ONNX_EXTERNAL_OPENMP
#include <execinfo.h>
#include <omp.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#endif

namespace onnx_external {
namespace {

Error out_of_memory() noexcept {
  try {
    return error_with(ErrorCode::kIo, kOutOfMemory,
                      {{RemedyOption::kThreads, "1", "needs less memory"}});
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kIo, "out of memory"};  // short enough to need no allocation
  }
}

// Allocators give each thread its own large region. Under a limit on address space, a new thread
// may get no region although running threads have one.
bool thread_has_memory() noexcept {
  try {
    ::operator delete(::operator new(1));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

#ifdef ONNX_EXTERNAL_OPENMP

// Starts threads as a test, before an OpenMP region begins, that the region can have its threads:
// libgomp ends the process if it gets no thread or no memory for a team. The first of these threads
// then begins the region, and ends after it. So no remaining thread owns a pool of OpenMP threads,
// for which a forked child would wait forever, and a pool that the caller owns is not touched.
class Crew {
 public:
  // Starts threads for a team of `members`, or as many as the system provides. The threads wait.
  explicit Crew(int members) : members_(members), size_(members + spare_threads(members)) {
    try {
      threads_.reserve(static_cast<std::size_t>(size_));
      ids_.resize(static_cast<std::size_t>(size_));
      while (threads_.size() < ids_.size()) {
        threads_.emplace_back([this, number = threads_.size()] { stand_by(number); });
      }
    } catch (const std::exception&) {  // there are no more threads, or no memory for one
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  ~Crew() { dismiss(0); }

  // Calls work(0), ..., work(members - 1) in an OpenMP region (fewer if OMP_THREAD_LIMIT or
  // OMP_DYNAMIC requires it). If not all threads could be started, calls nothing and returns false.
  [[nodiscard]] bool run_region(const std::function<void(int)>& work) {
    if (!is_complete()) {
      return false;
    }
    dismiss(1);
    {
      const std::lock_guard lock(mutex_);
      work_ = &work;
    }
    dismiss(0);
    return true;
  }

 private:
  // Besides their stacks, the threads of a team need far less than this each.
  static constexpr std::size_t kRoomPerThread = std::size_t{16} << 10U;

  // libgomp lets a thread that waits for others spin for milliseconds, unless there are more
  // threads than CPUs. If other programs use the CPUs, this makes a save of a small model take four
  // times as long (2 cores, load 4: 53 ms instead of 13). With one more thread, which does nothing,
  // waiting threads sleep.
  static int spare_threads(int members) { return members == omp_get_num_procs() ? 1 : 0; }

  // libgomp calls malloc(), which need not be what `operator new` calls. Its threads end by
  // pthread_exit(), for which the C library loads the unwinder once; if it has no memory for that,
  // it aborts there, and returns no frame here.
  [[nodiscard]] bool has_room_for_team() const noexcept {
    void* const room = std::malloc(kRoomPerThread * static_cast<std::size_t>(size_));
    std::free(room);
    void* frame = nullptr;
    return room != nullptr && ::backtrace(&frame, 1) == 1;
  }

  void stand_by(std::size_t number) {
    const bool is_able = number != 0 || has_room_for_team();
    std::unique_lock lock(mutex_);
    ids_[number] = ::gettid();
    ++arrived_;
    able_ += is_able ? 1 : 0;
    changed_.notify_all();
    changed_.wait(lock, [&] { return number >= wanted_; });
    lock.unlock();
    if (work_ != nullptr) {
      run(*work_);
    }
  }

  [[nodiscard]] bool is_complete() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ == threads_.size(); });
    return able_ == size_;
  }

  // Ends all threads except the first `wanted` threads.
  void dismiss(std::size_t wanted) {
    {
      const std::lock_guard lock(mutex_);
      wanted_ = wanted;
    }
    changed_.notify_all();
    for (std::size_t number = wanted; number < threads_.size(); ++number) {
      threads_[number].join();
      // A limit on processes counts a thread until the kernel has removed it, shortly after its
      // end.
      while (::tgkill(::getpid(), ids_[number], 0) == 0) {
        ::sched_yield();
      }
    }
    threads_.resize(std::min(threads_.size(), wanted));
  }

  void run(const std::function<void(int)>& work) const {
#pragma omp parallel num_threads(size_)
    take_part(omp_get_thread_num(), work);
    (void)omp_pause_resource_all(omp_pause_hard);  // joins the threads of the region
  }

  void take_part(int thread, const std::function<void(int)>& work) const {
    if (thread == 0 || (thread < members_ && thread_has_memory())) {
      work(thread);
    }
  }

  const int members_;
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t wanted_ = static_cast<std::size_t>(size_);  // threads from this number on may go
  std::size_t arrived_ = 0;
  int able_ = 0;
  const std::function<void(int)>* work_ = nullptr;
  std::vector<pid_t> ids_;
  std::vector<std::thread> threads_;
};

#endif

}  // namespace

#ifdef ONNX_EXTERNAL_OPENMP

int available_threads() {
  // OMP_NUM_THREADS, or else one per CPU in the affinity mask.
  return std::clamp(omp_get_max_threads(), 1, kMaxThreads);
}

std::string thread_runtime() {
  switch (_OPENMP) {  // year and month of the specification
    case 201511:
      return "OpenMP 4.5 (libgomp)";
    case 201811:
      return "OpenMP 5.0 (libgomp)";
    default:
      return "OpenMP " + std::to_string(_OPENMP) + " (libgomp)";
  }
}

#else

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
}

std::string thread_runtime() {
  return "C++ threads";
}

#endif

int thread_count(int requested) {
  return requested > 0 ? requested : available_threads();
}

int thread_count(int requested, std::uint64_t bytes) {
  // Starting a team takes as long as copying a few hundred kilobytes.
  constexpr std::uint64_t kBytesPerThread = std::uint64_t{1} << 20U;
  const std::uint64_t useful = std::min<std::uint64_t>(1 + bytes / kBytesPerThread, kMaxThreads);
  return requested > 0 ? requested : std::min(available_threads(), static_cast<int>(useful));
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
#ifdef ONNX_EXTERNAL_OPENMP
  if (threads > 1 && Crew(threads).run_region(work)) {
    return;
  }
#endif
  run_plain_team(threads, work);
}

void run_plain_team(int threads, const std::function<void(int)>& work) {
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

bool run_beside(const std::function<void()>& work, const std::function<void()>& meanwhile) {
  std::thread other;
  try {
    other = std::thread(std::cref(work));
  } catch (const std::exception&) {  // there is no more thread, or no memory for one
    return false;
  }
  meanwhile();
  other.join();
  return true;
}

}  // namespace onnx_external
