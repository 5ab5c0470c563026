// Formats a report as one HTML page for a browser, which is page.html with the report's JSON
// document inside.
//
// The page is self-contained and makes no network requests. Names are embedded only as data, so
// that a name cannot become markup or script.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// The maximum size of a report in a page, in bytes. It is sufficient for about 90,000 tensors.
inline constexpr std::size_t kMaxPageReport = std::size_t{16} << 20;

// Returns the page of a report. `document` is the report's JSON document, as a command prints it
// with --json. If it is longer than `most` bytes, it is shortened. Faults are kept first, then the
// largest entries, and the page says how much is left out. Needs memory for several times the size
// of the document.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view document,
                                    std::size_t most = kMaxPageReport);

// Returns the page of a verification, which also lists the current tensors of the models as
// `contents` of its report. `document` is the result of verify_document() for these models. A model
// whose tensors cannot be listed has no contents.
[[nodiscard]] std::string verify_page(std::string_view title, std::string_view document,
                                      std::span<const std::filesystem::path> models);

// Checks, before long work starts, that `path` can be written. Its folder must exist, and if a file
// of that name exists, it must be an older page that may be replaced. Errors: kAlreadyExists,
// kNotFound.
[[nodiscard]] Status check_page(const std::filesystem::path& path, Overwrite overwrite);

// Writes a page to a file, which appears complete or not at all. Errors: kAlreadyExists, kIo.
[[nodiscard]] Status write_page(const std::filesystem::path& path, std::string_view page,
                                Overwrite overwrite);

}  // namespace onnx_external
