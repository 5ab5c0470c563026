#include "base/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace onnx_external {
namespace {

TEST(BufferPool, LendsEachBufferToOneThreadAtATime) {
  constexpr int kBuffers = 3;
  constexpr int kLeases = 2000;
  BufferPool pool(kBuffers);
  std::atomic<int> lent = 0;
  std::atomic<int> most = 0;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads(8);
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < kLeases; ++i) {
        const BufferPool::Lease lease(pool);
        const int now = ++lent;
        int seen = most.load();
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::yield();
        --lent;
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(done, 8 * kLeases);  // each thread that waited was woken
  EXPECT_LE(most, kBuffers);
}

}  // namespace
}  // namespace onnx_external
