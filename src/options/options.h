// The options of the commands and of the Python package, each in one row of one table: its names,
// its kind, its help, and what it sets. The commands parse their arguments with it and print it as
// their help, from which the man pages are generated. The Python package takes its keywords with
// it.
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

// The parsed options of a command line. Each command reads the members that its own options set; an
// option that several commands have sets the same members for all of them.
struct CommandOptions {
  std::filesystem::path first;                // GRAPH.onnx or MODEL.onnx
  std::vector<std::filesystem::path> files;   // CHECKPOINT... or FILE...
  std::vector<std::filesystem::path> others;  // --against or --diff

  SaveTarget target;  // cut-external: `folder` is the path of the piece
  SaveOptions save;   // with `open`, `mapping`, `plan` and `write`, which other commands also have
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
inline constexpr unsigned kPythonAlone = 16;  // a keyword that no command has as an option

// The sections of the help text, in order.
enum class OptionGroup : std::uint8_t { kInput, kMapping, kOutput, kWork, kCommon };

enum class OptionKind : std::uint8_t {
  kPositional,  // one word without a dash
  kWords,       // all words up to the next option; positional if the name has no dash
  kFlag,        // no value; a bool in Python
  kOffFlag,     // "--no-NAME", which turns NAME off; a bool in Python
  kText,        // one value; a str in Python
  kPath,        // one path
  kNumber,      // a whole number; an int in Python
  kSize,        // a number of bytes, "500MB" or "4GiB"; an int or a str in Python
  kTexts,       // a value each time it is given; a str or a sequence of str in Python
  kNames,       // likewise, several names separated by commas
  kPaths,       // likewise, a path
};

struct OptionRow {
  std::string_view name;   // "max-shard-size"; "o,output" with its short name; "GRAPH"
  std::string_view value;  // how the help calls the value: "SIZE"
  OptionKind kind;
  OptionGroup group;
  unsigned commands;  // bits
  // The keyword of oe.save() and its like is the name with underscores; false: Python has no such
  // keyword, or takes another kind of value for it.
  bool is_keyword;
  std::string_view help;  // lines that fit behind a column of 25 characters
  // Takes one value ("" for a flag). kInvalidArgument, with what is wrong with the value alone.
  Status (*take)(CommandOptions& options, const std::string& text);
  std::span<const std::string_view> choices = {};  // all values, if they are words

  // "max_shard_size"
  [[nodiscard]] std::string keyword() const;
  // A word without a dash.
  [[nodiscard]] bool is_positional() const { return name.front() >= 'A' && name.front() <= 'Z'; }
};

[[nodiscard]] std::span<const OptionRow> option_rows();

// The sections of a command's help text that list its options.
[[nodiscard]] std::string options_help(unsigned command);

// The mapping options with the contents of the map file.
[[nodiscard]] Result<MappingOptions> mapping_options(const CommandOptions& options);

}  // namespace onnx_external
