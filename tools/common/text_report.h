// What the commands print for people.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "common/error_report.h"
#include "inspect/inspect.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"

namespace onnx_external {

[[nodiscard]] std::string save_text(const SaveReport& report, Lists lists);
// The plan, a line a slot.
[[nodiscard]] std::string dry_run_text(const SaveReport& report, Lists lists);

// Findings of one cause are one line.
enum class Compared { kNothing, kCheckpoint };
enum class Names { kFirst, kAll };
[[nodiscard]] std::string verify_text(const std::filesystem::path& model,
                                      const VerifyReport& report, Compared compared,
                                      Names names = Names::kFirst);

enum class Listing { kFlat, kTree };
[[nodiscard]] std::string inspect_text(const Inspection& inspection, Listing listing);

// "1.24 s, 1.77 GB/s".
[[nodiscard]] std::string speed_text(std::uint64_t bytes, double seconds);

// Peak memory of this process.
[[nodiscard]] std::string peak_memory_text();

}  // namespace onnx_external
