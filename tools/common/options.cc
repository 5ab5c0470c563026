#include "common/options.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "checkpoint/naming/known_classes.h"

namespace onnx_external {
namespace {

// "--max-shard-size", "-o,--output", "GRAPH"; for a flag that turns something off, both ways.
std::string spelled(const OptionRow& row) {
  const std::string name(row.name);
  if (row.kind == OptionKind::kOffFlag) {
    return "--" + name + ",!--no-" + name;
  }
  const std::size_t comma = name.find(',');
  if (comma != std::string::npos) {
    return "-" + name.substr(0, comma) + ",--" + name.substr(comma + 1);
  }
  return (row.is_positional() ? "" : "--") + name;
}

// Passes one value to the row. A wrong value ends the parsing.
CommandLine::TakeText taker(const OptionRow& row, CommandOptions& options) {
  return [&row, &options](const std::string& text) {
    if (const Status status = row.take(options, text); !status) {
      const std::string name(row.name.substr(row.name.find(',') + 1));
      refuse((row.is_positional() ? "" : "--") + name, status.error().message);
    }
  };
}

// Takes names that are separated by commas.
CommandLine::TakeText taker_of_names(const OptionRow& row, CommandOptions& options) {
  return
      [name = "--" + std::string(row.name), take = taker(row, options)](const std::string& text) {
        for (std::size_t start = 0; start <= text.size();) {
          const std::size_t comma = std::min(text.find(',', start), text.size());
          if (comma == start) {
            refuse(name, "contains an empty name");
          }
          take(text.substr(start, comma - start));
          start = comma + 1;
        }
      };
}

void add_option(CommandLine& line, const OptionRow& row, CommandOptions& options) {
  const std::string name = spelled(row);
  const auto take = taker(row, options);
  switch (row.kind) {
    case OptionKind::kFlag:
    case OptionKind::kOffFlag:
      return line.flag(name, [take] { take(""); });
    case OptionKind::kWords:
      return line.list(name, take);
    case OptionKind::kTexts:
    case OptionKind::kPaths:
      return line.repeatable(name, take);
    case OptionKind::kNames:
      return line.repeatable(name, taker_of_names(row, options));
    case OptionKind::kPositional:
    case OptionKind::kText:
    case OptionKind::kPath:
    case OptionKind::kNumber:
    case OptionKind::kSize:
      return line.value(name, take);
  }
}

}  // namespace

void add_options(CommandLine& line, unsigned command, CommandOptions& options) {
  options.save.open.classes = &known_classes();
  for (const OptionRow& row : option_rows()) {
    if ((row.commands & command) != 0) {
      add_option(line, row, options);
    }
  }
  line.excludes("--verbose", "--quiet");
}

ShowProgress show_progress(const CommandOptions& options) {
  return options.quiet ? ShowProgress::kNo : ShowProgress::kYes;
}

}  // namespace onnx_external
