#include "common/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnx_external {
namespace {

TEST(VerifyText, WarnsOfWhatAnotherLoaderRefuses) {
  VerifyReport report;
  report.tensors = 3;
  const auto text = [&] { return verify_text("m", report, Compared::kNothing, Names::kFirst); };
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("warning")));
  report.remarks = {{DataRemark::kNoLength, "w", 1}};
  EXPECT_THAT(text(), testing::StartsWith("warning: 'w': no length in external_data: "));
  EXPECT_THAT(text(), testing::HasSubstr("m: 3 external tensors, 0 bytes: ok"));
  report.remarks = {{DataRemark::kZeroLength, "w", 3}};
  EXPECT_THAT(text(), testing::StartsWith("warning: 'w' and 2 more: length 0 in external_data"));
}

}  // namespace
}  // namespace onnx_external
