#include "save/plan_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class CopySteps : public testing::Test {
 protected:
  // A plan of ranges of so many bytes, each in the file of that number.
  void plan(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& ranges,
            Layout layout = Layout::kPerTensor) {
    plan_ = {};
    plan_.layout = layout;
    for (const auto& [file, bytes] : ranges) {
      plan_.files.resize(std::max<std::size_t>(plan_.files.size(), file + 1));
      plan_.tensors.emplace_back();
      plan_.ranges.push_back({bytes, plan_.ranges.size(), file, plan_.files[file].bytes});
      plan_.files[file].bytes += bytes;
    }
    done_ = WrittenRanges(ranges.size());
  }
  void plan_files(std::size_t count, std::uint64_t bytes) {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> ranges;
    for (std::uint32_t file = 0; file < count; ++file) {
      ranges.emplace_back(file, bytes);
    }
    plan(ranges);
  }

  onnx_external::CopySteps steps(int threads = 2) {
    const CopyJob job{plan_, model_, checkpoint_, data_, options_, done_, nullptr};
    return plan_copy(job, threads);
  }

  // The ranges in the order of their steps.
  static std::vector<std::uint32_t> order(const onnx_external::CopySteps& steps) {
    std::vector<std::uint32_t> ranges;
    for (const CopyStep& step : steps.steps) {
      ranges.push_back(step.item.range);
    }
    return ranges;
  }

  // How many bytes of each range the steps copy.
  static std::map<std::uint32_t, std::uint64_t> copied(const onnx_external::CopySteps& steps) {
    std::map<std::uint32_t, std::uint64_t> bytes;
    for (const auto& [pass, item] : steps.steps) {
      EXPECT_EQ(item.range, steps.passes[pass].pass.head);
      EXPECT_EQ(item.first, bytes[item.range]) << "range " << item.range;
      bytes[item.range] += item.length;
    }
    return bytes;
  }

  TempDir dir_;
  Model model_ = model_for({});
  Checkpoint checkpoint_ =
      open_one(dir_.write("c.pt", torch_zip({{.name = "w", .shape = {1}, .bytes = "abcd"}})));
  Directory data_ = Directory::open(dir_.path()).value();
  WriteOptions options_;
  SavePlan plan_;
  WrittenRanges done_;
};

TEST_F(CopySteps, AreTheSameForAnyNumberOfThreadsWhereNothingIsSplit) {
  plan_files(100, 10'000);
  EXPECT_EQ(order(steps(1)), order(steps(16)));
  EXPECT_EQ(copied(steps(1)).size(), 100U);
}

TEST_F(CopySteps, TakeLargeFilesFirst) {
  plan({{0, 100}, {1, 10'000}, {2, 10'001}, {3, kMiB}});
  EXPECT_THAT(order(steps()), ElementsAre(3, 2, 1, 0));
}

TEST_F(CopySteps, LeaveOutWhatIsDone) {
  plan_files(5, 100);
  done_[1] = 7;
  done_[3] = 0;
  const auto planned = steps();
  EXPECT_THAT(copied(planned),
              UnorderedElementsAre(std::pair(0U, 100U), std::pair(2U, 100U), std::pair(4U, 100U)));
  EXPECT_EQ(planned.bytes, 300U);
  EXPECT_EQ(planned.files[1].done, 1U);
  EXPECT_EQ(planned.files[3].done, 1U);
}

TEST_F(CopySteps, AreEmptyWhenEverythingIsWritten) {
  plan_files(3, 100);
  done_.assign(3, 7U);
  EXPECT_TRUE(steps().steps.empty());
}

TEST_F(CopySteps, SplitATensorThatWouldKeepOneThreadBusy) {
  plan({{0, 3 * kCopyChunkBytes + 1}, {1, 100}});
  plan_.tensors[0].cast_to = DType::kFloat16;
  EXPECT_EQ(steps(2).passes.front().chunk_bytes, kCopyChunkBytes);
  EXPECT_EQ(steps(2).passes.front().chunks, 4U);
  EXPECT_EQ(steps(2).files[0].items, 4U);
  EXPECT_EQ(copied(steps(2))[0], 3 * kCopyChunkBytes + 1);
  EXPECT_EQ(steps(1).passes.front().chunks, 1U);
  EXPECT_EQ(copied(steps(1))[0], 3 * kCopyChunkBytes + 1);
}

TEST_F(CopySteps, LeaveATensorWholeThatOneThreadSplices) {
  plan({{0, 3 * kCopyChunkBytes + 1}, {1, 100}});
  EXPECT_EQ(steps(2).passes.front().chunks, 1U);
}

TEST_F(CopySteps, FillShardsSideBySideByRisingOffset) {
  plan({{0, 100}, {0, 200}, {1, 300}, {1, 400}}, Layout::kShards);
  const auto planned = steps();
  EXPECT_THAT(order(planned), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(planned.files[0].items, 2U);
  EXPECT_EQ(planned.files[1].items, 2U);
}

TEST_F(CopySteps, AlsoCopyEmptyTensors) {
  plan_files(1, 0);
  EXPECT_THAT(order(steps()), ElementsAre(0));
}

}  // namespace
}  // namespace onnx_external
