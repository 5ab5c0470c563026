// How the JSON documents of the commands are written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace onnx_external {

using Document = nlohmann::ordered_json;

// On one line, in plain ASCII, so that a name cannot send a terminal its control characters.
[[nodiscard]] std::string compact(const Document& value);

// One member a line, and one element a line in lists of objects.
[[nodiscard]] std::string document_text(const Document& document);

}  // namespace onnx_external
