// Errors as the commands print them: the message, the lists, and the remedies.
#pragma once

#include <string>
#include <string_view>

#include "onnx_external/result.h"

namespace onnx_external {

enum class Lists { kShort, kFull };  // kShort: at most kMaxShownItems of each list

inline constexpr std::size_t kMaxShownItems = 8;

// The message, followed by the error's lists and remedies; a single remedy is on the message's
// line. Names are made safe to print, and options are quoted for a shell.
[[nodiscard]] std::string error_text(const Error& error, Lists lists);

// "--inputs 'x,mask'", ready to paste.
[[nodiscard]] std::string option_text(const Remedy& remedy);

// {"error": {...}}, as docs/cli.md documents it. `file`: what the message is about; may be empty.
[[nodiscard]] std::string error_document(std::string_view code, std::string_view message,
                                         std::string_view file, const ErrorDetails* details);

}  // namespace onnx_external
