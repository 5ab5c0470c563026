// Provides a pool of a few large buffers that many threads share, so that memory use does not grow
// with the number of threads.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "base/io_buffer.h"

namespace onnx_external {

// The pool may be used from any thread. Returned buffers keep their memory for the next use.
class BufferPool {
 public:
  static constexpr int kMost = 16;

  // Creates a pool with `buffers` buffers. Requires: buffers <= kMost.
  explicit BufferPool(int buffers) : free_(buffers) {}

  // Holds one buffer during its lifetime. The constructor waits until a buffer is free.
  class Lease {
   public:
    explicit Lease(BufferPool& pool) : pool_(pool), buffer_(pool.take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give_back(std::move(buffer_)); }

    [[nodiscard]] IoBuffer& operator*() { return buffer_; }

   private:
    BufferPool& pool_;
    IoBuffer buffer_;
  };

 private:
  IoBuffer take() {
    std::unique_lock<std::mutex> lock(mutex_);
    given_back_.wait(lock, [this] { return free_ > 0; });
    --free_;
    return idle_count_ == 0 ? IoBuffer() : std::move(idle_[--idle_count_]);
  }

  void give_back(IoBuffer buffer) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_[idle_count_++] = std::move(buffer);
      ++free_;
    }
    given_back_.notify_one();
  }

  // This is not a std::counting_semaphore, because the one in libstdc++ 12 can read a count above
  // zero and still sleep forever.
  std::mutex mutex_;
  std::condition_variable given_back_;
  int free_;
  std::array<IoBuffer, kMost> idle_;  // a fixed array, because returning a buffer must not fail
  std::size_t idle_count_ = 0;
};

}  // namespace onnx_external
