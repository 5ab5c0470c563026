#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "save/transaction.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

class TargetLimits : public testing::Test {
 protected:
  Status check() const { return check_in(dir_.path()); }
  Status check_in(const std::filesystem::path& folder) const {
    return check_target_limits(Directory::open(folder).value(),
                               {.models = names_, .data_dir = "initializers", .files = files_},
                               there_);
  }

  TempDir dir_;
  std::vector<PlannedFile> files_{{"a", 10}, {"b", 20}};
  std::vector<std::string> names_{"model.onnx"};
  std::uint64_t there_ = 0;
};

TEST_F(TargetLimits, AreNotReachedByASmallModel) {
  EXPECT_THAT(check(), IsOk());
}

TEST_F(TargetLimits, TellHowMuchRoomIsNeeded) {
  files_[1].bytes = std::uint64_t{1} << 62;
  EXPECT_THAT(check(), FailsWith(ErrorCode::kIo, "the save needs 4.61 EB on this disk"));
  there_ = std::uint64_t{1} << 62;  // what is there needs no room
  EXPECT_THAT(check(), IsOk());
}

TEST_F(TargetLimits, DoNotWrapWhenSizesDo) {
  files_.assign(4, {"huge", std::uint64_t{1} << 62});
  EXPECT_THAT(check(), FailsWith(ErrorCode::kIo, "the save needs 18.4 EB on this disk"));
}

TEST_F(TargetLimits, RefuseALongName) {
  names_.push_back(std::string(256, 'x'));
  EXPECT_THAT(check(), FailsWith(ErrorCode::kIo, "has 256 bytes, but names on this file system"));
}

TEST_F(TargetLimits, RefuseALongPath) {
  std::filesystem::path folder = dir_.path();
  while (folder.native().size() < 3900) {
    folder /= std::string(100, 'd');
  }
  std::filesystem::create_directories(folder);
  files_.push_back({std::string(200, 'x'), 1});
  EXPECT_THAT(check_in(folder), FailsWith(ErrorCode::kIo, "save to a folder with a shorter path"));
}

TEST_F(TargetLimits, RefuseFilesPastTheProcesssLimit) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit low = before;
  low.rlim_cur = 15;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = check();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(status, FailsWith(ErrorCode::kIo, "b: would have 20 bytes, but the largest file"));
}

TEST_F(TargetLimits, CountTheRoomOfFilesThatAreThere) {
  dir_.write("a", std::string(100'000, 'x'));
  files_ = {{"a", 200'000}, {"none", 5}};
  const std::uint64_t bytes = allocated_bytes(Directory::open(dir_.path()).value(), files_);
  EXPECT_GE(bytes, 100'000U);
  EXPECT_LE(bytes, 200'000U);
}

}  // namespace
}  // namespace onnx_external
