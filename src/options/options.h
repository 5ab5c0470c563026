// Defines the options of the commands and of the Python package in one table. Each row has the
// names, the type and the help text of one option, and what the option sets. The commands use the
// table to parse their arguments and to print their help, from which the man pages are generated.
// The Python package uses it for its keyword arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/listing.h"
#include "onnx_external/cut.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// The parsed options of a command line. Each command reads the members that its options set. An
// option sets the same members for all commands that have it.
struct CommandOptions {
  std::filesystem::path first;                // GRAPH.onnx or MODEL.onnx
  std::vector<std::filesystem::path> files;   // CHECKPOINT... or FILE...
  std::vector<std::filesystem::path> others;  // --against or --diff

  SaveTarget target;  // for cut-external, `folder` is the path of the new model
  // Includes `open`, `mapping`, `plan` and `write`, which other commands also use.
  SaveOptions save;
  std::filesystem::path map_file;
  std::filesystem::path save_map;

  CutOptions cut;

  NameFilter filter;
  ListOrder order = ListOrder::kGiven;
  bool tree = false;
  bool modules = false;
  bool sha256 = false;
  bool bytes = true;
  std::filesystem::path page;

  bool json = false;
  bool sandbox = true;
  bool quiet = false;
  bool verbose = false;
};

// The commands that have an option, as bits.
inline constexpr unsigned kSaveExternal = 1;
inline constexpr unsigned kVerifyExternal = 2;
inline constexpr unsigned kInspectExternal = 4;
inline constexpr unsigned kCutExternal = 8;
// Marks a keyword in Python that no command has as an option.
inline constexpr unsigned kPythonAlone = 16;

// The sections of the help text, in order.
enum class OptionGroup : std::uint8_t { kInput, kMapping, kOutput, kWork, kCommon };

enum class OptionKind : std::uint8_t {
  kPositional,  // one argument without a dash
  kWords,       // all arguments up to the next option; positional if the name has no dash
  kFlag,        // no value; a bool in Python
  kOffFlag,     // "--no-NAME", which turns NAME off; a bool in Python
  kText,        // one value; a str in Python
  kPath,        // one path
  kNumber,      // a whole number; an int in Python
  kSize,        // a number of bytes, "500MB" or "4GiB"; an int or a str in Python
  kTexts,  // one value for each time that the option is given; a str or a sequence of str in Python
  kNames,  // like kTexts; each value is a comma-separated list of names
  kPaths,  // like kTexts; each value is a path
};

struct OptionRow {
  std::string_view name;   // "max-shard-size"; "o,output" with a short name; "GRAPH"
  std::string_view value;  // name of the value in the help text: "SIZE"
  OptionKind kind;
  OptionGroup group;
  unsigned commands;  // the commands that have the option, as bits
  // True if oe.save() and similar functions have a keyword for this option, named like the option
  // but with underscores. False if Python has no such keyword, or a keyword with another type of
  // value.
  bool is_keyword;
  std::string_view help;  // lines for the help text, where they follow a column of 25 characters
  // Parses one value ("" for a flag). Fails with kInvalidArgument; the message describes only the
  // value.
  Status (*take)(CommandOptions& options, const std::string& text);
  std::span<const std::string_view> choices = {};  // all possible values, if they are a fixed list

  // Returns the name of the keyword in Python: "max_shard_size".
  [[nodiscard]] std::string keyword() const;
  // Returns whether the option is a positional argument.
  [[nodiscard]] bool is_positional() const { return name.front() >= 'A' && name.front() <= 'Z'; }
};

[[nodiscard]] std::span<const OptionRow> option_rows();

// Returns the sections of a command's help text that list its options.
[[nodiscard]] std::string options_help(unsigned command);

// Returns the mapping options, including the contents of the map file.
[[nodiscard]] Result<MappingOptions> mapping_options(const CommandOptions& options);

}  // namespace onnx_external
