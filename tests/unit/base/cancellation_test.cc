#include "base/cancellation.h"

#include <gtest/gtest.h>

#include <optional>

namespace onnx_external {
namespace {

TEST(Cancellation, HasTheFolderAndThePhase) {
  std::optional<Phase> phase;
  const ProgressFn given = [](const Progress& progress) {
    return progress.bytes_done == 0 ? Continue::kYes : Continue::kCancel;
  };
  const ProgressFn noting = noting_phase(given, phase);
  EXPECT_EQ(noting({Phase::kCopy, 0, 8}), Continue::kYes);
  EXPECT_FALSE(phase);
  EXPECT_EQ(noting({Phase::kVerify, 8, 8}), Continue::kCancel);
  ASSERT_EQ(phase, Phase::kVerify);
  const Error error = cancelled_in("out", phase, {ErrorCode::kCancelled, "cancelled"});
  EXPECT_EQ(error.message, "out: cancelled while verifying; nothing was published");
  EXPECT_EQ(cancelled_in("", {}, error).message, ".: cancelled; nothing was published");
}

TEST(Cancellation, LeavesOtherErrorsAndEmptyFunctionsUnchanged) {
  EXPECT_EQ(cancelled_in("out", Phase::kCopy, {ErrorCode::kIo, "the disk is full"}).message,
            "the disk is full");
  std::optional<Phase> phase;
  EXPECT_FALSE(noting_phase({}, phase));
}

}  // namespace
}  // namespace onnx_external
