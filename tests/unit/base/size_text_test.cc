#include "base/size_text.h"

#include <gtest/gtest.h>

namespace onnx_external {
namespace {

TEST(SizeText, HasThreeDigitsAndAPowerOfTen) {
  EXPECT_EQ(size_text(0), "0 bytes");
  EXPECT_EQ(size_text(1), "1 byte");
  EXPECT_EQ(size_text(999), "999 bytes");
  EXPECT_EQ(size_text(1000), "1.00 kB");
  EXPECT_EQ(size_text(46'820'000), "46.8 MB");
  EXPECT_EQ(size_text(999'499), "999 kB");
  EXPECT_EQ(size_text(999'500), "1.00 MB");
  EXPECT_EQ(size_text(2'147'483'647), "2.15 GB");
  EXPECT_EQ(size_text(~std::uint64_t{0}), "18.4 EB");
}

}  // namespace
}  // namespace onnx_external
