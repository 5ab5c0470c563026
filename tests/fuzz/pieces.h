// Splits an input into several byte strings. Each one but the last is preceded by its length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "support/zip_builder.h"

namespace onnx_external {

// Takes a 16-bit length and as many bytes from the input, or all remaining bytes if there are
// fewer.
inline std::string_view take_piece(std::string_view& input) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < 2 && i < input.size(); ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(input[i])) << (8 * i);
  }
  input.remove_prefix(std::min<std::size_t>(2, input.size()));
  const std::string_view taken = input.substr(0, length);
  input.remove_prefix(taken.size());
  return taken;
}

inline std::string piece(std::string_view bytes) {
  std::string text;
  put_le(text, bytes.size(), 2);
  return text.append(bytes);
}

}  // namespace onnx_external
