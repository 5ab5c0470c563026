// Matchers for Result and Status: EXPECT_THAT(result, IsOk()), FailsWith(code, substring). The
// substring may be one of the ways out, too: "--convert sparse", "--key a".
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
  std::string said = arg.error().message;
  if (arg.error().details != nullptr) {
    for (const Remedy& remedy : arg.error().details->remedies) {
      said += "; --" + remedy.option + (remedy.value.empty() ? "" : " " + remedy.value) + ": " +
              remedy.when;
    }
  }
  *result_listener << "failed with code " << static_cast<int>(arg.error().code) << ": " << said;
  return arg.error().code == code && said.find(std::string(part)) != std::string::npos;
}

}  // namespace onnx_external
