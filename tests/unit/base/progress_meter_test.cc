#include "base/progress_meter.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/parallel.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

TEST(ProgressMeter, ReportsTheEndOfAPhase) {
  std::vector<Progress> reports;
  const ProgressFn report = [&](const Progress& progress) {
    reports.push_back(progress);
    return Continue::kYes;
  };
  ProgressMeter meter(report);
  meter.begin(Phase::kSync, 10);
  EXPECT_TRUE(meter.add(10));
  EXPECT_THAT(meter.finish(), IsOk());
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().phase, Phase::kSync);
  EXPECT_EQ(reports.back().bytes_done, 10U);
  EXPECT_EQ(reports.back().bytes_total, 10U);
}

TEST(ProgressMeter, NeverGoesBackAndNeverRunsTwiceAtOnce) {
  std::uint64_t last = 0;
  bool fell = false;
  std::atomic<int> inside{0};
  bool overlapped = false;
  const ProgressFn report = [&](const Progress& progress) {
    overlapped |= ++inside != 1;
    fell |= progress.bytes_done < last;
    last = progress.bytes_done;
    --inside;
    return Continue::kYes;
  };
  ProgressMeter meter(report);
  meter.begin(Phase::kCopy, 100'000);
  ASSERT_THAT(parallel_for(100'000, 4,
                           [&](std::size_t, int) -> Status {
                             (void)meter.add(1);
                             return {};
                           }),
              IsOk());
  EXPECT_THAT(meter.finish(), IsOk());
  EXPECT_EQ(last, 100'000U);
  EXPECT_FALSE(fell);
  EXPECT_FALSE(overlapped);
}

TEST(ProgressMeter, StaysCancelled) {
  const ProgressFn report = [](const Progress&) { return Continue::kCancel; };
  ProgressMeter meter(report);
  meter.begin(Phase::kCopy, 2);
  EXPECT_FALSE(meter.add(1));
  EXPECT_FALSE(meter.add(1));
  EXPECT_THAT(meter.finish(), FailsWith(ErrorCode::kCancelled, "cancelled"));
}

TEST(ProgressMeter, NeedsNoCallback) {
  const ProgressFn none;
  ProgressMeter meter(none);
  meter.begin(Phase::kCopy, 1);
  EXPECT_TRUE(meter.add(1));
  EXPECT_THAT(meter.finish(), IsOk());
}

}  // namespace
}  // namespace onnx_external
