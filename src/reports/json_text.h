// Formats the JSON documents of the commands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace onnx_external {

using Document = nlohmann::ordered_json;

// One line of plain ASCII, so that no control character of a name reaches a terminal.
[[nodiscard]] std::string compact(const Document& value);

// One member per line, and one element per line in lists of objects.
[[nodiscard]] std::string document_text(const Document& document);

}  // namespace onnx_external
