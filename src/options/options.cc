#include "options/options.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::size_t kHelpColumn = 25;  // where the texts begin

struct Section {
  OptionGroup group;
  std::string_view title;
};
constexpr std::array<Section, 5> kSections = {{
    {OptionGroup::kInput, "input"},
    {OptionGroup::kMapping, "mapping (docs/mapping.md has the rules)"},
    {OptionGroup::kOutput, "output"},
    {OptionGroup::kWork, "work"},
    {OptionGroup::kCommon, "common"},
}};

// "-o, --output OUT_DIR", "--no-fsync", "GRAPH.onnx"
std::string label_of(const OptionRow& row) {
  const std::size_t comma = row.name.find(',');
  const std::string name(row.name.substr(comma == std::string_view::npos ? 0 : comma + 1));
  const std::string value(row.value);
  if (row.is_positional()) {
    return name + value;
  }
  const std::string before =
      comma == std::string_view::npos ? "" : "-" + std::string(row.name.substr(0, comma)) + ", ";
  return before + (row.kind == OptionKind::kOffFlag ? "--no-" : "--") + name +
         (value.empty() ? "" : " " + value);
}

// One row of the help, with its line feed.
std::string row_help(const std::string& label, std::string_view help) {
  std::string text = "  " + label;
  if (text.size() + 2 > kHelpColumn) {
    text += '\n' + std::string(kHelpColumn, ' ');
  } else {
    text.resize(kHelpColumn, ' ');
  }
  for (const char c : help) {
    text += c == '\n' ? '\n' + std::string(kHelpColumn, ' ') : std::string(1, c);
  }
  return text + '\n';
}

}  // namespace

std::string OptionRow::keyword() const {
  std::string keyword(name.substr(name.find(',') + 1));
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  return keyword;
}

std::string options_help(unsigned command) {
  std::string text;
  for (const Section& section : kSections) {
    std::string rows;
    for (const OptionRow& row : option_rows()) {
      if (row.group == section.group && (row.commands & command) != 0) {
        rows += row_help(label_of(row), row.help);
      }
    }
    if (!rows.empty()) {
      text += (text.empty() ? "" : "\n") + std::string(section.title) + ":\n" + rows;
    }
  }
  return text + row_help("--version", "print the versions of this program and its libraries") +
         row_help("-h, --help", "print this");
}

Result<MappingOptions> mapping_options(const CommandOptions& options) {
  MappingOptions mapping = options.save.mapping;
  if (!options.map_file.empty()) {
    TRY_ASSIGN(auto file, read_map_file(options.map_file));
    mapping.map.insert(mapping.map.begin(), std::make_move_iterator(file.map.begin()),
                       std::make_move_iterator(file.map.end()));
    mapping.derived = std::move(file.derived);
  }
  return mapping;
}

}  // namespace onnx_external
