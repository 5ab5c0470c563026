// Decodes numbers and strings of pickle's text opcodes.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// The number that the whole of `text` spells, if any.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// The bits of a float as spelled by repr(); a NaN for anything else.
[[nodiscard]] std::int64_t float_bits(std::string_view text);

// Reverses Python's repr() of a str; other escapes stay as they are.
[[nodiscard]] std::string unescape(std::string_view text);

// UTF-8 from Python's raw-unicode-escape: latin-1 bytes, \uXXXX and \UXXXXXXXX.
[[nodiscard]] std::string unescape_unicode(std::string_view text);

// The bytes whose latin-1 characters the UTF-8 text holds; nullopt if it has characters past
// U+00FF.
[[nodiscard]] std::optional<std::string> latin1_bytes(std::string_view text);

}  // namespace onnx_external
