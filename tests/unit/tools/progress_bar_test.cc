#include "common/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnx_external {
namespace {

using ::testing::HasSubstr;

BarState half_of(std::size_t phase, std::size_t phases) {
  using Seconds = std::chrono::duration<double>;
  return {{Phase::kCopy, 500'000'000, 1'000'000'000}, phase, phases, Seconds(1), 0};
}

TEST(ProgressLine, SpansAllPhases) {
  EXPECT_DOUBLE_EQ(part_of(half_of(0, 2)), 0.25);
  EXPECT_DOUBLE_EQ(part_of(half_of(1, 2)), 0.75);
  EXPECT_EQ(progress_line(half_of(0, 2), 200),
            "copying   [######------------------]  25%  500 MB of 1.00 GB  0.50 GB/s  0:03 left");
}

TEST(ProgressLine, NeverGoesBack) {
  BarState state = half_of(0, 2);
  state.least = 0.6;
  EXPECT_THAT(progress_line(state, 200), HasSubstr(" 60%"));
}

TEST(ProgressLine, FitsAnyTerminal) {
  for (std::size_t columns = 0; columns < 120; ++columns) {
    EXPECT_LE(progress_line(half_of(0, 2), columns).size() + 1, std::max<std::size_t>(columns, 1));
  }
  EXPECT_EQ(progress_line(half_of(0, 2), 50), "copying   [###---------]  25%  0:03 left");
  EXPECT_EQ(progress_line(half_of(0, 2), 20), "copying    25%");
}

}  // namespace
}  // namespace onnx_external
