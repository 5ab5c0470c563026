// A few large buffers that many threads share.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <semaphore>
#include <utility>

#include "base/io_buffer.h"

namespace onnx_external {

// Safe from any thread. Returned buffers keep their memory.
class BufferPool {
 public:
  static constexpr int kMost = 16;

  // Lends out at most `buffers` at once. Requires: buffers <= kMost.
  explicit BufferPool(int buffers) : free_(buffers) {}

  // Holds one buffer during its lifetime. The constructor waits until one is free.
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
    free_.acquire();
    const std::lock_guard<std::mutex> lock(mutex_);
    return idle_count_ == 0 ? IoBuffer() : std::move(idle_[--idle_count_]);
  }

  void give_back(IoBuffer buffer) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_[idle_count_++] = std::move(buffer);
    }
    free_.release();
  }

  std::counting_semaphore<kMost> free_;
  std::mutex mutex_;
  std::array<IoBuffer, kMost> idle_;  // a fixed array, because giving back must not fail
  std::size_t idle_count_ = 0;
};

}  // namespace onnx_external
