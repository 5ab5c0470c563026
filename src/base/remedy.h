// Creates errors that suggest options with which the operation may succeed.
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

// Returns the failure value of any Result, like fail(), with remedies in addition to the message.
[[nodiscard]] inline tl::unexpected<Error> fail_with(ErrorCode code, std::string message,
                                                     std::vector<Remedy> remedies) {
  return tl::unexpected<Error>(error_with(code, std::move(message), std::move(remedies)));
}

// Returns the error with its kind set to `kind`, so that callers can recognize it.
[[nodiscard]] inline Error of_kind(ErrorKind kind, Error error) {
  auto details = error.details ? std::make_shared<ErrorDetails>(*error.details)
                               : std::make_shared<ErrorDetails>();
  details->kind = kind;
  error.details = std::move(details);
  return error;
}

// Returns the option as it is typed in a shell: "--inputs 'x,mask'".
[[nodiscard]] std::string option_text(const Remedy& remedy);

}  // namespace onnx_external
