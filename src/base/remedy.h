// Failures that know a way out: an option of the library's that would let the work go on.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

[[nodiscard]] inline Error error_with(ErrorCode code, std::string message,
                                      std::vector<Remedy> remedies) {
  auto details = std::make_shared<ErrorDetails>();
  details->remedies = std::move(remedies);
  return Error{code, std::move(message), std::move(details)};
}

// The failure value of any Result, with its ways out beside the message.
[[nodiscard]] inline tl::unexpected<Error> fail_with(ErrorCode code, std::string message,
                                                     std::vector<Remedy> remedies) {
  return tl::unexpected<Error>(error_with(code, std::move(message), std::move(remedies)));
}

}  // namespace onnx_external
