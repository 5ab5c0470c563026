// Adds the options of a command to its command line, according to the table of options
// (options/options.h).
#pragma once

#include "common/command_line.h"
#include "common/progress_bar.h"
#include "options/options.h"

namespace onnx_external {

// Adds all options of `command` (kSaveExternal, ...). When `line` is parsed, it fills in `options`.
void add_options(CommandLine& line, unsigned command, CommandOptions& options);

[[nodiscard]] ShowProgress show_progress(const CommandOptions& options);

}  // namespace onnx_external
