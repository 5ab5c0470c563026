// How everything in this library fails.
//
// Bad input, missing files and full disks are values of type Error inside a Result; broken
// invariants of our own code are assert(). The library never throws for bad input, never prints
// and never exits. std::bad_alloc is the one exception that may pass.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

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

// One line of a list that belongs to an error. Texts are raw: names from outside are not quoted.
struct ErrorItem {
  std::string name;                     // of a slot or a key
  std::string form;                     // "FLOAT [64, 3, 7, 7]"; empty = not known
  std::string note;                     // what is said of it: "used by Conv '/conv1/Conv'"
  std::vector<std::string> candidates;  // names on the other side, the nearest first
};

struct ErrorList {
  std::string title;  // "missing in the checkpoint"
  std::vector<ErrorItem> items;
};

// A way out of an error: an option of the library's, by the name that it also has on the command
// line without dashes ("inputs" is MappingOptions::inputs and --inputs), and when to use it.
struct Remedy {
  std::string option;
  std::string value;  // to paste, not quoted: "input_ids,mask"; empty = the option takes none
  std::string when;   // "if they are the caller's own inputs"; may be empty
};

// What an error lists in full. Faces print as much of it as they have room for.
struct ErrorDetails {
  std::vector<ErrorList> lists;
  std::vector<Remedy> remedies;
};

// `message` reads "FILE: WHERE: WHAT; FIX" (what is known of it): lower case, no full stop, names
// from outside already quoted, so that it can be printed as it is. It names no command line option.
struct Error {
  ErrorCode code;
  std::string message;
  std::shared_ptr<const ErrorDetails> details = {};  // null = there are none
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
