// Defines Result<T> and Error. The functions of this library return errors as values.
//
// Bad input, missing files and full disks are reported as an Error inside a Result. Violated
// invariants of the library itself trigger assert(). The library never throws for bad input, never
// prints and never exits. The only exceptions that may leave it are std::bad_alloc and exceptions
// of the caller's own functions, unless their documentation says that they are caught
// (SaveOptions::before_publish).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "onnx_external/error_kinds.h"

namespace onnx_external {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something impossible
  kNotFound,         // a file, a tensor or a name is missing
  kAlreadyExists,    // a file or folder would be overwritten
  kCorrupt,          // the input breaks the rules of its format
  kUnsupported,      // legal input that this library does not handle
  kMismatch,         // two inputs contradict each other: shapes, element types, bytes
  kAmbiguous,        // two or more choices are possible; the message lists them
  kIo,               // the operating system reported an error: disk full, permission, read error
  kBusy,             // another save is writing into the folder; the call does not wait for it
  kCancelled,        // the progress callback asked to stop
};

// Returns the stable name that JSON documents and Python exceptions use, such as "not-found".
// docs/cli.md lists the names.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

// One entry in a list of an error. Names that come from files are neither quoted nor escaped.
struct ErrorItem {
  std::string name;                     // name of a slot or a key
  std::string form;                     // type and shape, "FLOAT [64, 3, 7, 7]"; empty = not known
  std::string note;                     // more about the name: "used by Conv '/conv1/Conv'"
  std::vector<std::string> candidates;  // similar or fitting keys or slots, nearest first
};

struct ErrorList {
  ErrorKind kind = ErrorKind::kNone;
  std::string owner;  // what the names belong to: a graph, if there are several, or a node
  std::vector<ErrorItem> items;
};

// Returns the title of a list for messages, such as "encoder.onnx: missing from the checkpoint".
[[nodiscard]] std::string list_title(const ErrorList& list);

// An option with which the operation may succeed, and when to use it.
struct Remedy {
  RemedyOption option = RemedyOption::kMap;
  std::string value;  // ready to paste, not quoted: "input_ids,mask"; empty = it takes no value
  std::string when;   // "if they are the caller's own inputs"; may be empty

  friend bool operator==(const Remedy&, const Remedy&) = default;
};

// The details of an error, with its complete lists. User interfaces may show only the beginning of
// each list.
struct ErrorDetails {
  ErrorKind kind = ErrorKind::kNone;  // kNone = the kind of the first list, if there is one
  std::vector<ErrorList> lists;
  std::vector<Remedy> remedies;
};

// An error. `message` has the form "FILE: WHERE: WHAT; FIX"; unknown parts are left out. The
// message is in lower case, has no full stop and does not mention command line options. It can be
// printed unchanged, because names that come from files are already quoted.
struct Error {
  ErrorCode code;
  std::string message;
  std::shared_ptr<const ErrorDetails> details = {};  // null = there are none
};

// Returns the kind of an error, which is more specific than its code. This is `details->kind` or,
// if that is not set, the kind of the first list. Returns kNone if there are no details.
[[nodiscard]] ErrorKind kind_of(const ErrorDetails* details);

inline constexpr std::size_t kShownItems = 8;
inline constexpr std::size_t kAllItems = static_cast<std::size_t>(-1);

struct ErrorTextOptions {
  std::size_t max_items = kShownItems;   // limit per list; kAllItems: no limit, and all candidates
  std::string_view how_to_see_all = {};  // text after "... and 3 more", such as " (-v lists all)"
};

// Formats an error for people, with a line feed at the end. The message comes first, then the
// lists, then the remedies as command line options, quoted for a shell ("--inputs 'x,mask'").
// Control characters in names are escaped.
[[nodiscard]] std::string error_text(const Error& error, const ErrorTextOptions& options = {});

// Prints error_text() without the final line feed: `std::cerr << result.error() << '\n'`.
std::ostream& operator<<(std::ostream& stream, const Error& error);

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Creates the failure value of any Result: `return fail(ErrorCode::kCorrupt, "...");`
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}

// Returns an error to the caller: `if (!r) return fail(std::move(r).error());`
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// Returns an error to the caller, with `where` in front of its message: "where: message".
[[nodiscard]] inline tl::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = std::string(where) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace onnx_external
