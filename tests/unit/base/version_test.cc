#include "onnx_external/version.h"

#include <gtest/gtest.h>

#include <string>

namespace onnx_external {
namespace {

TEST(Version, IsOneInNumbersAndText) {
  const std::string numbers = std::to_string(ONNX_EXTERNAL_VERSION_MAJOR) + "." +
                              std::to_string(ONNX_EXTERNAL_VERSION_MINOR) + "." +
                              std::to_string(ONNX_EXTERNAL_VERSION_PATCH);
  EXPECT_EQ(ONNX_EXTERNAL_VERSION, numbers);
}

}  // namespace
}  // namespace onnx_external
