// The options of a command, as its table of options (options/options.h) lists them.
#pragma once

#include "common/command_line.h"
#include "common/progress_bar.h"
#include "options/options.h"

namespace onnx_external {

// Adds all options of `command` (kSaveExternal, ...), which set `options` when the line is parsed.
void add_options(CommandLine& line, unsigned command, CommandOptions& options);

[[nodiscard]] ShowProgress show_progress(const CommandOptions& options);

}  // namespace onnx_external
