// Formats the reports of the commands as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/inspect.h"
#include "inspect/module_list.h"
#include "onnx_external/cut.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"

namespace onnx_external {

enum class Lists { kShort, kFull };
inline constexpr std::string_view kHowToSeeAll = " (-v lists all)";

// The number of names that a line lists, unless all names are requested.
inline constexpr std::size_t kListedNames = 5;

// Formats the report of a save. If there are several models, there is a line for each, followed by
// the facts that they share. For a dry run, the text shows the plan, with one line per slot.
[[nodiscard]] std::string save_text(const SaveReport& report, RunMode mode, Lists lists);

// Formats the report of a verification. Findings with the same cause share a line.
enum class Compared { kNothing, kCheckpoint };
enum class Names { kFirst, kAll };
[[nodiscard]] std::string verify_text(const std::filesystem::path& model,
                                      const VerifyReport& report, Compared compared,
                                      Names names = Names::kFirst);

// Describes the piece that was cut out, and the names of its inputs and outputs.
[[nodiscard]] std::string cut_text(const std::filesystem::path& piece, const CutReport& report,
                                   Lists lists);

enum class Listing { kFlat, kTree };
[[nodiscard]] std::string inspect_text(const Inspection& inspection, Listing listing);

// Returns a line for each module, indented by its depth, and a line for the whole model.
[[nodiscard]] std::string modules_text(const ModuleList& list);

// Returns a line for each of Checkpoint::notes().
[[nodiscard]] std::string notes_text(const std::vector<std::string>& notes);

// Returns time and speed: "1.24 s, 1.77 GB/s".
[[nodiscard]] std::string speed_text(std::uint64_t bytes, double seconds);

// Returns the peak memory of this process: "16.8 MB peak memory".
[[nodiscard]] std::string peak_memory_text();

}  // namespace onnx_external
