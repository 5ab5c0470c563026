#include "base/parallel.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

TEST(ParallelFor, DoesEveryStepOnce) {
  std::vector<std::atomic<int>> done(1000);
  ASSERT_THAT(parallel_for(done.size(), 8,
                           [&](std::size_t i, int) -> Status {
                             ++done[i];
                             return {};
                           }),
              IsOk());
  for (const auto& count : done) {
    EXPECT_EQ(count, 1);
  }
}

TEST(ParallelFor, ReturnsTheErrorOfTheLowestIndex) {
  for (int round = 0; round < 50; ++round) {
    EXPECT_THAT(parallel_for(200, 8,
                             [](std::size_t i, int) -> Status {
                               if (i >= 37) {
                                 return fail(ErrorCode::kIo, "step " + std::to_string(i) + "!");
                               }
                               return {};
                             }),
                FailsWith(ErrorCode::kIo, "step 37!"));
  }
}

TEST(ParallelFor, TurnsExceptionsIntoErrors) {
  EXPECT_THAT(
      parallel_for(4, 2, [](std::size_t, int) -> Status { throw std::runtime_error("boom"); }),
      FailsWith(ErrorCode::kIo, "boom"));
}

TEST(ParallelFor, HasNothingToDoForNoSteps) {
  EXPECT_THAT(parallel_for(0, 8, [](std::size_t, int) -> Status { std::abort(); }), IsOk());
}

TEST(ThreadCount, IsOnePerAvailableCpuUnlessAsked) {
  EXPECT_GE(thread_count(0), 1);
  EXPECT_EQ(thread_count(5), 5);
}

}  // namespace
}  // namespace onnx_external
