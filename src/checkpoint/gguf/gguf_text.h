// Formats the metadata of a GGUF file as text for listings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/gguf/gguf_metadata.h"

namespace onnx_external {

// Returns pairs (key, value) in the order of the file. Strings are in quotes, and long strings are
// shortened. Arrays are shown as their type and first items.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> gguf_texts(
    const GgufMetadata& metadata);

}  // namespace onnx_external
