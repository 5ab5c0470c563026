// Writes text to stdout, stderr and files, and formats names and tables for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/size_text.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Writes all of `text`. kIo for a full disk, a closed pipe, ...
[[nodiscard]] Status write_stdout(std::string_view text);

// Ignores errors, because they could not be reported anywhere.
void write_stderr(std::string_view text);

// Writes a file that appears complete or not at all. kAlreadyExists, kIo.
[[nodiscard]] Status write_file(const std::filesystem::path& path, std::string_view text,
                                Overwrite overwrite);

// A name from a file made safe to print in a table, without quotes.
[[nodiscard]] std::string shown(std::string_view name);

// True for text without characters that a terminal obeys.
[[nodiscard]] bool is_harmless(std::string_view text);

// A text of the library, which may contain names, made safe to print. Quotes do not change.
[[nodiscard]] std::string calm(const std::string& words);

// Formats rows as columns two spaces apart, left-aligned except those whose index is in `right`.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& right);

}  // namespace onnx_external
