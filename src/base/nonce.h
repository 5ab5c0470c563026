// Generates random bytes for unique names. They are not suitable as secrets.
#pragma once

#include <span>
#include <string>

namespace onnx_external {

void fill_with_random(std::span<char> out);

// Returns 32 random lower-case hex digits.
[[nodiscard]] std::string nonce_text();

}  // namespace onnx_external
