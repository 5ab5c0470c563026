// How the text opcodes of pickle spell numbers and strings.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// The number that all of `text` spells, if it does.
template <typename T, typename... Base>
std::optional<T> parse_number(std::string_view text, Base... base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return value;
}

// The bits of the float that repr() spelled; those of a NaN for anything else.
[[nodiscard]] std::int64_t float_bits(std::string_view text);

// Undoes what Python's repr() of a str does; other escapes stay as they are.
[[nodiscard]] std::string unescape(std::string_view text);

// UTF-8 from Python's raw-unicode-escape: latin-1 bytes, \uXXXX and \UXXXXXXXX.
[[nodiscard]] std::string unescape_unicode(std::string_view text);

// The bytes that UTF-8 text spells one by one; nothing when it has characters past U+00FF.
[[nodiscard]] std::optional<std::string> latin1_bytes(std::string_view text);

}  // namespace onnx_external
