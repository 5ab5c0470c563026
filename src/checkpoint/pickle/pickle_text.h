// Decodes numbers and strings of pickle's text opcodes.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// Parses `text` as a number; nullopt if it is not one as a whole.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// Parses a float in the spelling of repr(), and returns its bits; those of a NaN for other text.
[[nodiscard]] std::int64_t float_bits(std::string_view text);

// Reverses Python's repr() of a str; other escapes stay as they are.
[[nodiscard]] std::string unescape(std::string_view text);

// UTF-8 from Python's raw-unicode-escape: latin-1 bytes, \uXXXX and \UXXXXXXXX.
[[nodiscard]] std::string unescape_unicode(std::string_view text);

// The bytes whose latin-1 characters the UTF-8 text holds; nullopt if it has characters past
// U+00FF.
[[nodiscard]] std::optional<std::string> latin1_bytes(std::string_view text);

}  // namespace onnx_external
