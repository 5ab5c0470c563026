// Defines Result<T> and Error, with which the functions of this library report failure by return
// value.
//
// Bad input, missing files and full disks are values of type Error inside a Result; broken
// invariants of our own code trigger assert(). The library never throws for bad input, never prints
// and never exits. The only exceptions that may leave it are std::bad_alloc and exceptions of the
// caller's own functions, unless their documentation says that they are caught
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
  kAlreadyExists,    // it would overwrite something
  kCorrupt,          // the input breaks the rules of its format
  kUnsupported,      // legal input that this library does not handle
  kMismatch,         // two inputs contradict each other: shapes, element types, bytes
  kAmbiguous,        // two or more answers fit; the message lists them
  kIo,               // the operating system reported an error: disk full, permission, read error
  kBusy,             // another save is writing into the folder; the call does not wait for it
  kCancelled,        // the progress callback asked to stop
};

// "not-found", "mismatch", ...: the stable name in JSON documents and Python exceptions, which
// docs/cli.md lists.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

// One line of an error's list. Texts are raw: names that come from files are not quoted.
struct ErrorItem {
  std::string name;                     // name of a slot or a key
  std::string form;                     // type and shape, "FLOAT [64, 3, 7, 7]"; empty = not known
  std::string note;                     // a note for the reader: "used by Conv '/conv1/Conv'"
  std::vector<std::string> candidates;  // similar or fitting names on the other side, nearest first
};

struct ErrorList {
  ErrorKind kind = ErrorKind::kNone;
  std::string owner;  // what the names belong to: a graph, if there are several, or a node
  std::vector<ErrorItem> items;
};

// "encoder.onnx: missing from the checkpoint", for people.
[[nodiscard]] std::string list_title(const ErrorList& list);

// An option with which the work could succeed, and when to use it.
struct Remedy {
  RemedyOption option = RemedyOption::kMap;
  std::string value;  // ready to paste, not quoted: "input_ids,mask"; empty = it takes no value
  std::string when;   // "if they are the caller's own inputs"; may be empty

  friend bool operator==(const Remedy&, const Remedy&) = default;
};

// The full lists of an error. User interfaces print as many of them as they have room for.
struct ErrorDetails {
  ErrorKind kind = ErrorKind::kNone;  // kNone = the kind of the first list, if there is one
  std::vector<ErrorList> lists;
  std::vector<Remedy> remedies;
};

// `message` reads "FILE: WHERE: WHAT; FIX", where parts that are unknown are left out. It is lower
// case, has no full stop and names no command line option. Names that come from files are already
// quoted, so it can be printed unchanged.
struct Error {
  ErrorCode code;
  std::string message;
  std::shared_ptr<const ErrorDetails> details = {};  // null = there are none
};

// Returns the kind of an error, which is more specific than its code: `details->kind`, or else the
// kind of the first list. kNone without details.
[[nodiscard]] ErrorKind kind_of(const ErrorDetails* details);

inline constexpr std::size_t kShownItems = 8;
inline constexpr std::size_t kAllItems = static_cast<std::size_t>(-1);

struct ErrorTextOptions {
  std::size_t max_items = kShownItems;   // limit for each list; kAllItems: all, with all candidates
  std::string_view how_to_see_all = {};  // text after "... and 3 more", such as " (-v lists all)"
};

// The error as text for a person, with a line feed at its end: the message, the lists below it, and
// the remedies as options of the commands, quoted for a shell ("--inputs 'x,mask'"). Control
// characters in names are escaped.
[[nodiscard]] std::string error_text(const Error& error, const ErrorTextOptions& options = {});

// Prints error_text() without the final line feed: `std::cerr << result.error() << '\n'`.
std::ostream& operator<<(std::ostream& stream, const Error& error);

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

// Passes a failure on, with `where` in front of its message: "where: message".
[[nodiscard]] inline tl::unexpected<Error> fail_in(std::string_view where, Error error) {
  error.message = std::string(where) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace onnx_external
