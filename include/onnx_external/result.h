// How everything in this library fails.
//
// Bad input, missing files and full disks are values of type Error inside a Result; broken
// invariants of our own code are assert(). The library never throws for bad input, never prints
// and never exits. std::bad_alloc is the one exception that may pass.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace onnx_external {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that cannot be
  kNotFound,         // a file, a tensor or a name is missing
  kAlreadyExists,    // it would overwrite something
  kCorrupt,          // the input breaks the rules of its format
  kUnsupported,      // legal input that this library does not handle
  kMismatch,         // two inputs contradict each other: shapes, element types, bytes
  kAmbiguous,        // two or more answers fit; the message lists them
  kIo,               // the operating system refused: disk full, permission, read error
  kCancelled,        // the progress callback asked to stop
};

// `message` reads "FILE: WHERE: WHAT; FIX" (what is known of it): lower case, no full stop, names
// from outside already quoted, so that it can be printed as it is.
struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// The failure value of any Result: `return fail(ErrorCode::kCorrupt, "...");`
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

// Passes a failure on: `if (!r) return fail(std::move(r).error());`
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// Passes a failure on with what this layer knows put in front: "where: message".
[[nodiscard]] inline tl::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = std::string(where) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace onnx_external
