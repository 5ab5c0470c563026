// Text for a terminal: names from files made safe to print, and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_external {

// A name from a file made safe to print in a table, without quotes.
[[nodiscard]] std::string shown(std::string_view name);

// True for text without characters that a terminal obeys.
[[nodiscard]] bool is_harmless(std::string_view text);

// Makes a message of the library, which may contain names, safe to print. Quotes do not change.
[[nodiscard]] std::string calm(const std::string& words);

// Formats rows as columns two spaces apart, left-aligned except those whose index is in `right`.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& right);

}  // namespace onnx_external
