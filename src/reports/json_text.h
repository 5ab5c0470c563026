// Formats JSON values as text for the documents that the commands print.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace onnx_external {

using Document = nlohmann::ordered_json;

// Formats a value as one line of plain ASCII, so that no control character in a name reaches a
// terminal.
[[nodiscard]] std::string compact(const Document& value);

// Formats a document with one member per line, and one element per line in lists of objects.
[[nodiscard]] std::string document_text(const Document& document);

}  // namespace onnx_external
