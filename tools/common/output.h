// Text to stdout, stderr and files; and how sizes and names are shown.
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

// All of `text`, or an error that says why not (a full disk, a closed pipe).
[[nodiscard]] Status write_stdout(std::string_view text);

// Errors are ignored: there is nowhere left to say so.
void write_stderr(std::string_view text);

// A file that appears complete or not at all. kAlreadyExists, kIo.
[[nodiscard]] Status write_file(const std::filesystem::path& path, std::string_view text,
                                Overwrite overwrite);

// A name from a file made safe to print in a table, without quotes.
[[nodiscard]] std::string shown(std::string_view name);

// Rows as left-aligned columns two spaces apart; the columns in `right` (by index) right-aligned.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows,
                                     const std::vector<std::size_t>& right);

}  // namespace onnx_external
