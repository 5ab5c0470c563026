// Formats the metadata of a GGUF file as text, for listings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf/gguf_metadata.h"

namespace onnx_external {

// (key, value) in the order of the file: plain numbers, texts in quotes, long ones cut, and arrays
// as their type and their first items.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> gguf_texts(
    const GgufMetadata& metadata);

}  // namespace onnx_external
