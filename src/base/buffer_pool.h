// A few large buffers that many threads share.
#pragma once

#include <cstddef>
#include <mutex>
#include <semaphore>
#include <utility>
#include <vector>

#include "base/io_buffer.h"

namespace onnx_external {

// Safe from any thread. Buffers keep the room that they once had.
class BufferPool {
 public:
  static constexpr int kMost = 16;

  // At most `buffers` are out at once; at most kMost.
  explicit BufferPool(int buffers) : free_(buffers) {}

  // Holds one buffer while it lives. Whoever finds none waits.
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
    if (idle_.empty()) {
      return {};
    }
    IoBuffer buffer = std::move(idle_.back());
    idle_.pop_back();
    return buffer;
  }

  void give_back(IoBuffer buffer) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(std::move(buffer));
    }
    free_.release();
  }

  std::counting_semaphore<kMost> free_;
  std::mutex mutex_;
  std::vector<IoBuffer> idle_;
};

}  // namespace onnx_external
