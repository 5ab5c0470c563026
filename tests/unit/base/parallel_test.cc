#include "base/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
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

TEST(ParallelTasks, AlsoRunOnTheCallingThread) {
  std::atomic<int> here = 0;
  std::atomic<int> done = 0;
  ASSERT_THAT(parallel_tasks(2, 2,
                             [&, caller = std::this_thread::get_id()](std::size_t, int) -> Status {
                               const auto end =
                                   std::chrono::steady_clock::now() + std::chrono::seconds(10);
                               ++done;
                               here += std::this_thread::get_id() == caller ? 1 : 0;
                               while (done < 2 && std::chrono::steady_clock::now() < end) {
                                 std::this_thread::yield();
                               }
                               return {};
                             }),
              IsOk());
  EXPECT_EQ(done, 2);
  EXPECT_EQ(here, 1);
}

TEST(ParallelTasks, ReturnTheErrorOfTheLowestIndex) {
  EXPECT_THAT(parallel_tasks(2, 2,
                             [](std::size_t i, int) -> Status {
                               return fail(ErrorCode::kIo, "task " + std::to_string(i) + "!");
                             }),
              FailsWith(ErrorCode::kIo, "task 0!"));
}

// Whether `count` threads are inside of work() at the same time.
bool meet(int count) {
  std::atomic<int> arrived = 0;
  run_team(count, [&](int) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    ++arrived;
    while (arrived < count && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  });
  return arrived == count;
}

TEST(RunTeam, RunsAllThreadsAtOnce) {
  EXPECT_TRUE(meet(1));
  EXPECT_TRUE(meet(5));
}

TEST(RunTeam, GivesEachThreadANumberOfItsOwn) {
  std::vector<std::atomic<int>> calls(6);
  run_team(6, [&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
  for (const auto& count : calls) {
    EXPECT_EQ(count, 1);
  }
}

TEST(RunTeam, NestsTeamsOfTheirOwn) {
  std::atomic<int> met = 0;
  run_team(3, [&](int) { met += meet(4) ? 1 : 0; });
  EXPECT_EQ(met, 3);
}

std::ptrdiff_t living_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

TEST(RunTeam, LeavesNoThread) {
  const auto before = living_threads();
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(meet(4));
    // The kernel forgets a thread a moment after it was joined.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (living_threads() != before && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    ASSERT_EQ(living_threads(), before);
  }
}

// Whether a forked child, which has 20 seconds, runs a team.
bool child_runs_a_team() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(meet(3) ? 0 : 1);
  }
  int status = 1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(RunTeam, WorksInAForkedChild) {
  ASSERT_TRUE(meet(3));
  EXPECT_TRUE(child_runs_a_team());
  EXPECT_TRUE(meet(3));
}

TEST(RunTeam, WorksInAChildThatIsForkedWhileAnotherThreadHasATeam) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "a lock of the address sanitizer that another thread holds stays held in a child";
#endif
#endif
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      (void)meet(2);
    }
  });
  for (int round = 0; round < 10; ++round) {
    EXPECT_TRUE(child_runs_a_team());
  }
  stop = true;
  other.join();
}

TEST(RunBeside, CallsBothAtTheSameTime) {
  std::atomic<bool> there = false;
  bool met = false;
  const auto wait = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!there && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    met = there;
  };
  ASSERT_TRUE(run_beside([&] { there = true; }, wait));
  EXPECT_TRUE(met);
}

TEST(ThreadCount, IsOnePerAvailableCpuUnlessAsked) {
  EXPECT_GE(thread_count(0), 1);
  EXPECT_EQ(thread_count(5), 5);
}

}  // namespace
}  // namespace onnx_external
