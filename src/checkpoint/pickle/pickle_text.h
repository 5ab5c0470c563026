// Decodes the numbers and strings in pickle's text opcodes.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// Parses the whole `text` as a number. Returns nullopt if it is not a number.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// Parses a float as written by repr() and returns its bits; for any other text, the bits of a NaN.
[[nodiscard]] std::int64_t float_bits(std::string_view text);

// Reverses Python's repr() of a str. Unknown escapes stay unchanged.
[[nodiscard]] std::string unescape(std::string_view text);

// Converts Python's raw-unicode-escape (latin-1 bytes, \uXXXX and \UXXXXXXXX) to UTF-8.
[[nodiscard]] std::string unescape_unicode(std::string_view text);

// Encodes UTF-8 text as latin-1 bytes; nullopt if it has characters past U+00FF.
[[nodiscard]] std::optional<std::string> latin1_bytes(std::string_view text);

}  // namespace onnx_external
