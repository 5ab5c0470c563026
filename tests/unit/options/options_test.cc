// The table of options: what it says holds for the help, the shell completion and the docs.
#include "options/options.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace onnx_external {
namespace {

constexpr unsigned kCommands[] = {kSaveExternal, kVerifyExternal, kInspectExternal, kCutExternal};

std::string text_of(const std::string& file) {
  std::ifstream stream(std::string(ONNX_EXTERNAL_SOURCES) + "/" + file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string long_name(const OptionRow& row) {
  return std::string(row.name.substr(row.name.find(',') + 1));
}

const OptionRow& row_of(unsigned command, std::string_view name) {
  return *std::find_if(option_rows().begin(), option_rows().end(), [&](const OptionRow& row) {
    return (row.commands & command) != 0 && long_name(row) == name;
  });
}

TEST(Options, NamesAreUniqueInEachCommand) {
  for (const unsigned command : kCommands) {
    std::set<std::string> names;
    for (const OptionRow& row : option_rows()) {
      if ((row.commands & command) != 0) {
        EXPECT_TRUE(names.insert(long_name(row)).second) << long_name(row);
      }
    }
  }
}

TEST(Options, LinesOfTheHelpFitIntoAHundredColumns) {
  for (const unsigned command : kCommands) {
    std::istringstream lines(options_help(command));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 100U) << line;
    }
  }
}

TEST(Options, TheHelpHasEachOptionInTheSectionOfItsGroup) {
  const std::string help = options_help(kSaveExternal);
  const auto mapping = help.find("mapping (docs/mapping.md has the rules):\n");
  const auto output = help.find("\noutput:\n");
  ASSERT_LT(mapping, output);
  EXPECT_GT(help.find("\n  --ignore RE "), mapping);
  EXPECT_LT(help.find("\n  --ignore RE "), output);
  EXPECT_NE(help.find("\n  -o, --output OUT_DIR   the folder"), std::string::npos);
  EXPECT_NE(help.find("\n  --no-fsync             do not wait"), std::string::npos);
  EXPECT_EQ(options_help(kInspectExternal).find("mapping"), std::string::npos);
}

TEST(Options, EachChoiceIsTakenAndEachOtherWordIsNot) {
  for (const OptionRow& row : option_rows()) {
    CommandOptions options;
    for (const std::string_view choice : row.choices) {
      EXPECT_TRUE(row.take(options, std::string(choice))) << row.name << " " << choice;
    }
    if (!row.choices.empty()) {
      const Status status = row.take(options, "nothing");
      ASSERT_FALSE(status) << row.name;
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(status.error().message,
                  testing::StartsWith("'nothing' is not a valid choice; choose "));
    }
  }
}

TEST(Options, TheShellCompletesEachChoice) {
  const std::string script = text_of("packaging/completions.bash");
  for (const OptionRow& row : option_rows()) {
    if (row.choices.empty()) {
      continue;
    }
    std::string words;
    for (const std::string_view choice : row.choices) {
      words += (words.empty() ? "" : " ") + std::string(choice);
    }
    EXPECT_THAT(script, testing::HasSubstr("--" + long_name(row) + ") words=\"" + words + "\""));
  }
}

TEST(Options, TheDocsNameEachOption) {
  const std::string docs = text_of("docs/cli.md") + text_of("docs/mapping.md");
  for (const OptionRow& row : option_rows()) {
    if (!row.is_positional() && row.commands != kPythonAlone) {
      const std::string name = (row.kind == OptionKind::kOffFlag ? "--no-" : "--") + long_name(row);
      EXPECT_NE(docs.find(name), std::string::npos) << name;
    }
  }
}

TEST(Options, AKeywordIsTheNameWithUnderscores) {
  EXPECT_EQ(row_of(kSaveExternal, "max-shard-size").keyword(), "max_shard_size");
  EXPECT_EQ(row_of(kSaveExternal, "output").keyword(), "output");
}

struct Wrong {
  std::string option;
  std::string text;
  std::string message;
};

TEST(Options, WrongValuesAreRefusedInWords) {
  const Wrong all[] = {
      {"threads", "1025", "'1025' is not a whole number from 0 to 1024"},
      {"threads", "0x2", "'0x2' is not a whole number from 0 to 1024"},
      {"max-expand", "0", "'0' is not a whole number from 1 to 1000000000000"},
      {"max-shard-size", "0", "'0' is not a whole number from 1 to 4611686018427387904"},
      {"max-shard-size", "5 TB",
       "'5 TB' is not a valid size; give a whole number, optionally followed by k, M, G, kB, MB, "
       "GB, KiB, MiB or GiB"},
      {"inline-below", "2MiB", "'2MiB' is more than the maximum of 1048576 bytes"},
      {"align", "8", "'8' is less than the minimum of 16 bytes"},
      {"align", "3k", "'3k' is not a power of two"},
      {"data-name", "a/b", ""},
      {"rename", "s/(/x/", ""},
      {"map", "=key", "'=key' is neither a file nor SLOT=KEY"},
  };
  for (const Wrong& wrong : all) {
    CommandOptions options;
    const Status status = row_of(kSaveExternal, wrong.option).take(options, wrong.text);
    ASSERT_FALSE(status) << wrong.option << " " << wrong.text;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << wrong.text;
    if (!wrong.message.empty()) {
      EXPECT_EQ(status.error().message, wrong.message);
    }
  }
}

TEST(Options, SizesAreReadInTheirUnits) {
  CommandOptions options;
  ASSERT_TRUE(row_of(kSaveExternal, "max-shard-size").take(options, "4GiB"));
  ASSERT_TRUE(row_of(kSaveExternal, "align").take(options, "64KiB"));
  ASSERT_TRUE(row_of(kSaveExternal, "inline-below").take(options, "0"));
  EXPECT_EQ(options.save.plan.max_shard_bytes, std::uint64_t{4} << 30);
  EXPECT_EQ(options.save.plan.alignment, 65536U);
  EXPECT_EQ(options.save.plan.inline_below, 0U);
}

TEST(Options, AMapTakesPairsBesideOneFile) {
  CommandOptions options;
  const OptionRow& map = row_of(kSaveExternal, "map");
  ASSERT_TRUE(map.take(options, "slot=key"));
  ASSERT_TRUE(map.take(options, "pairs.json"));
  EXPECT_EQ(options.map_file, "pairs.json");
  EXPECT_EQ(options.save.mapping.map.size(), 1U);
  EXPECT_FALSE(map.take(options, "more.json"));
}

}  // namespace
}  // namespace onnx_external
