// Writes text to stdout, to stderr and to files.
#pragma once

#include <filesystem>
#include <string_view>

#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Writes all of `text`. Fails with kIo, for example for a full disk or a closed pipe.
[[nodiscard]] Status write_stdout(std::string_view text);

// Writes all of `text`. Errors are ignored, because there is no place to report them.
void write_stderr(std::string_view text);

// Writes a file, which appears complete or not at all. Errors: kAlreadyExists, kIo.
[[nodiscard]] Status write_file(const std::filesystem::path& path, std::string_view text,
                                Overwrite overwrite);

}  // namespace onnx_external
