// What the commands say of an error: its message, what it lists, and the ways out of it.
#pragma once

#include <string>
#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

enum class Lists { kShort, kFull };  // kShort: at most kMaxShownItems of each list

inline constexpr std::size_t kMaxShownItems = 8;

// The message, and below it what the error lists and the ways out; a single way out stands on the
// message's line. Names are made safe to print; options stand as a shell would take them.
[[nodiscard]] std::string error_text(const Error& error, Lists lists);

// "--inputs 'x,mask'", to paste.
[[nodiscard]] std::string option_text(const Remedy& remedy);

// "not-found", "mismatch", ...: stable, documented in docs/cli.md.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

// {"error": {...}}, as docs/cli.md says. `file`: what the message is about; may be empty.
[[nodiscard]] std::string error_document(std::string_view code, std::string_view message,
                                         std::string_view file, const ErrorDetails* details);

}  // namespace onnx_external
