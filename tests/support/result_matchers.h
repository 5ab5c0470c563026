// Matchers for Result and Status: EXPECT_THAT(result, IsOk()), FailsWith(code, substring).
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "onnx_external/result.h"

namespace onnx_external {

MATCHER(IsOk, "succeeds") {
  if (!arg.has_value()) {
    *result_listener << "failed with: " << arg.error().message;
  }
  return arg.has_value();
}

MATCHER_P2(FailsWith, code, part, "fails with the code and a message that has the part") {
  if (arg.has_value()) {
    *result_listener << "succeeded";
    return false;
  }
  *result_listener << "failed with code " << static_cast<int>(arg.error().code) << ": "
                   << arg.error().message;
  return arg.error().code == code &&
         arg.error().message.find(std::string(part)) != std::string::npos;
}

}  // namespace onnx_external
