// What a program sees that uses OpenMP itself. It is compiled with OpenMP, and its runtime is the
// library's.
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "base/parallel.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

TEST(OpenMp, RunsTheTeams) {
  EXPECT_THAT(thread_runtime(), testing::StartsWith("OpenMP "));
  std::atomic<int> inside = 0;
  run_team(3, [&](int) { inside += omp_in_parallel() && omp_get_num_threads() == 3 ? 1 : 0; });
  EXPECT_EQ(inside, 3);
}

TEST(OpenMp, SaysHowManyThreadsThereAreByDefault) {
  const int before = omp_get_max_threads();
  EXPECT_EQ(thread_count(0), before);
  omp_set_num_threads(before + 2);
  EXPECT_EQ(thread_count(0), before + 2);
  EXPECT_EQ(thread_count(5), 5);
  omp_set_num_threads(before);
}

// The threads of this thread's own pool.
std::set<pid_t> own_pool() {
  std::set<pid_t> threads;
#pragma omp parallel num_threads(4)
  {
    const pid_t thread = ::gettid();
#pragma omp critical
    threads.insert(thread);
  }
  return threads;
}

TEST(OpenMp, LeavesTheCallersPoolAlone) {
  const std::set<pid_t> before = own_pool();
  ASSERT_EQ(before.size(), 4U);
  run_team(3, [](int) {});
  EXPECT_EQ(own_pool(), before);
}

TEST(OpenMp, RunsTeamsInsideOfTheCallersRegions) {
  std::atomic<int> done = 0;
#pragma omp parallel num_threads(2)
  run_team(3, [&](int) { ++done; });
  EXPECT_EQ(done, 6);
}

TEST(OpenMp, DoesAllStepsWithFewerThreadsThanWereAskedFor) {
  omp_set_dynamic(1);  // a region may get fewer, such as one for each CPU
  std::atomic<int> steps = 0;
  EXPECT_THAT(parallel_for(100, 50,
                           [&](std::size_t, int) -> Status {
                             ++steps;
                             return {};
                           }),
              IsOk());
  omp_set_dynamic(0);
  EXPECT_EQ(steps, 100);
}

}  // namespace
}  // namespace onnx_external
