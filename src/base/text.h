// Text for messages: names from files made safe to print, numbers made easy to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

inline constexpr std::size_t kMaxQuotedBytes = 200;

// Puts a name in single quotes. Control characters, quotes, backslashes and bytes that are not
// UTF-8 become \xNN; longer names are cut after kMaxQuotedBytes with "...". Use it for every name
// that comes from a file.
[[nodiscard]] std::string quote(std::string_view name);

// 'a', 'b' and 5 more: at most `most` names.
[[nodiscard]] std::string quote_list(std::span<const std::string> names, std::size_t most);

// True for well-formed UTF-8 (no surrogates, no overlong forms).
[[nodiscard]] bool is_utf8(std::string_view text);

// Appends two lower-case hex digits.
void append_hex(std::string& out, unsigned char byte);

// Eight lower-case hex digits, as checksums are written in our files. hex_number() accepts exactly
// eight digits.
[[nodiscard]] std::string hex_text(std::uint32_t number);
[[nodiscard]] std::optional<std::uint32_t> hex_number(std::string_view digits);

// ASCII only: A-Z to a-z.
[[nodiscard]] std::string ascii_lower(std::string_view text);

}  // namespace onnx_external
