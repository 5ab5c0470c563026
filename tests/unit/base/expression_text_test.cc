#include "base/expression_text.h"

#include <gtest/gtest.h>

namespace onnx_external {
namespace {

TEST(InvalidExpressionText, QuotesTheFaultAndThePartOfTheExpressionApart) {
  EXPECT_EQ(invalid_expression_text("missing ): (a"),
            "invalid regular expression, 'missing )' in '(a'");
  EXPECT_EQ(invalid_expression_text("pattern too large - compile failed"),
            "invalid regular expression, 'pattern too large - compile failed'");
}

}  // namespace
}  // namespace onnx_external
