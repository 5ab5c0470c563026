#include "common/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnx_external {
namespace {

TEST(VerifyText, WarnsOfEntriesThatStateNoLength) {
  VerifyReport report;
  report.tensors = 3;
  const auto text = [&] { return verify_text("m", report, Compared::kNothing, Names::kFirst); };
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("warning")));
  report.without_length = 1;
  EXPECT_THAT(text(), testing::StartsWith("warning: 1 tensor has no length in external_data: "));
  EXPECT_THAT(text(), testing::HasSubstr("m: 3 external tensors, 0 bytes: ok"));
  report.without_length = 2;
  EXPECT_THAT(text(), testing::StartsWith("warning: 2 tensors have no length"));
}

}  // namespace
}  // namespace onnx_external
