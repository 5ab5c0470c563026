// A report as one HTML page for a browser: page.html with the report's JSON document in it.
//
// The page needs nothing beside itself and asks no network. Names are only data in it: no name can
// become markup or script.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// The most bytes of a report that a page holds: about 90,000 tensors.
inline constexpr std::size_t kMaxPageReport = std::size_t{16} << 20;

// The page of a report. `document` is its JSON document, as a command prints it with --json. One
// that is longer than `most` bytes is cut: faults are kept first, then the largest entries, and the
// page says how much it leaves out. Memory: some times the document.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view document,
                                    std::size_t most = kMaxPageReport);

// The page of a verification, which also lists the current tensors of the models, as `contents` of
// its report. `document`: the result of verify_document() for these models. A model that cannot be
// listed has no contents.
[[nodiscard]] std::string verify_page(std::string_view title, std::string_view document,
                                      std::span<const std::filesystem::path> models);

// Checks before long work that `path` can be written: its folder exists, and a file of that name is
// an older page that may be replaced. kAlreadyExists, kNotFound.
[[nodiscard]] Status check_page(const std::filesystem::path& path, Overwrite overwrite);

// Writes a page, which appears complete or not at all. kAlreadyExists, kIo.
[[nodiscard]] Status write_page(const std::filesystem::path& path, std::string_view page,
                                Overwrite overwrite);

}  // namespace onnx_external
