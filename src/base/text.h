// Formats text for messages and terminals: makes names from files safe to print and numbers easy to
// read, and aligns tables. Matches names with patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

inline constexpr std::size_t kMaxQuotedBytes = 200;

// Puts a name in single quotes. Control characters, quotes, backslashes and bytes that are not
// UTF-8 become \xNN. Names longer than kMaxQuotedBytes are shortened and end with "...". Use this
// for every name that comes from a file.
[[nodiscard]] std::string quote(std::string_view name);

// Returns at most `most` quoted names, as in "'a', 'b' and 5 more".
[[nodiscard]] std::string quote_list(std::span<const std::string> names, std::size_t most);

// Returns whether the text is well-formed UTF-8 (no surrogates, no overlong forms).
[[nodiscard]] bool is_utf8(std::string_view text);

// Appends a byte as two lower-case hex digits.
void append_hex(std::string& out, unsigned char byte);

// Convert between a number and eight lower-case hex digits, the form in which this library's files
// state checksums. hex_number() accepts exactly eight digits.
[[nodiscard]] std::string hex_text(std::uint32_t number);
[[nodiscard]] std::optional<std::uint32_t> hex_number(std::string_view digits);

// Converts A-Z to a-z; other characters do not change.
[[nodiscard]] std::string ascii_lower(std::string_view text);

// Escapes a name from a file, so that it is safe to print in a table without quotes.
[[nodiscard]] std::string shown(std::string_view name);

// Returns whether the text is valid UTF-8 without control characters that a terminal would act on.
[[nodiscard]] bool is_harmless(std::string_view text);

// Makes a message of the library, which may contain names from files, safe to print. Returns the
// message unchanged if is_harmless() is true for it, otherwise escapes it like shown().
[[nodiscard]] std::string calm(const std::string& words);

// Returns whether the pattern matches the whole name, where * matches any characters and ? matches
// one. Takes time proportional to at most the product of both lengths.
[[nodiscard]] bool matches_pattern(std::string_view name, std::string_view pattern);

// Formats a table whose columns are two spaces apart. Columns whose index is in `right` are
// right-aligned, and all others are left-aligned.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& right);

}  // namespace onnx_external
