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

TEST(ParallelFor, TheCallingThreadDoesItsOwnWorkWhileOthersBegin) {
  for (const int threads : {1, 4}) {
    std::atomic<int> done{0};
    int done_before = -1;
    std::thread::id own;
    EXPECT_THAT(parallel_for(
                    100, threads,
                    [&](std::size_t, int) -> Status {
                      ++done;
                      return {};
                    },
                    [&]() -> Status {
                      own = std::this_thread::get_id();
                      while (threads > 1 && done < 100) {
                        std::this_thread::yield();  // the others do all there is
                      }
                      done_before = done;
                      return {};
                    }),
                IsOk());
    EXPECT_EQ(own, std::this_thread::get_id());
    EXPECT_EQ(done_before, threads > 1 ? 100 : 0);
    EXPECT_EQ(done, 100);
  }
}

TEST(ParallelFor, TheErrorOfItsOwnWorkComesFirst) {
  for (const int threads : {1, 4}) {
    const auto failing = [](std::size_t i, int) -> Status {
      return fail(ErrorCode::kIo, "step " + std::to_string(i));
    };
    EXPECT_THAT(parallel_for(20, threads, failing,
                             []() -> Status { return fail(ErrorCode::kCorrupt, "own"); }),
                FailsWith(ErrorCode::kCorrupt, "own"));
    EXPECT_THAT(
        parallel_for(20, threads, failing, []() -> Status { throw std::runtime_error("boom"); }),
        FailsWith(ErrorCode::kIo, "boom"));
    EXPECT_THAT(parallel_for(20, threads, failing, [] { return Status(); }),
                FailsWith(ErrorCode::kIo, "step 0"));
  }
}

TEST(ThreadCount, IsOnePerAvailableCpuUnlessAsked) {
  EXPECT_GE(thread_count(0), 1);
  EXPECT_EQ(thread_count(5), 5);
}

}  // namespace
}  // namespace onnx_external
