#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "base/error_lists.h"
#include "base/remedy.h"
#include "reports/error_document.h"

namespace onnx_external {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Error refusal(std::size_t missing) {
  auto details = std::make_shared<ErrorDetails>();
  ErrorList list{ErrorKind::kMissing, "", {}};
  for (std::size_t i = 0; i < missing; ++i) {
    list.items.push_back({"w" + std::to_string(i), "FLOAT [4]", "used by Add", {"v", "u", "t"}});
  }
  details->lists.push_back(std::move(list));
  details->lists.push_back({ErrorKind::kUnused, "", {{"a\x1b[31mb", "", "", {}}}});
  details->remedies = {{RemedyOption::kInputs, "x,mask", "if they are the caller's own inputs"},
                       {RemedyOption::kPartial, "", "leaves them without data"}};
  return {ErrorCode::kNotFound, "graph.onnx: weights are missing", std::move(details)};
}

TEST(ErrorText, ListsOneNameALineWithTheNearestBesideIt) {
  EXPECT_EQ(error_text(refusal(2)),
            "graph.onnx: weights are missing\n"
            "missing from the checkpoint: 2\n"
            "  w0  FLOAT [4]  used by Add  nearest: v, u\n"
            "  w1  FLOAT [4]  used by Add  nearest: v, u\n"
            "unused keys: 1\n"
            "  a\\x1b[31mb\n"
            "to fix this:\n"
            "  --inputs 'x,mask'  if they are the caller's own inputs\n"
            "  --partial          leaves them without data\n");
}

TEST(ErrorText, SendsNothingToTheTerminalButText) {
  auto details = std::make_shared<ErrorDetails>();
  details->lists.push_back(
      {ErrorKind::kKeys, "", {{"n", "", "used by Add 'a'", {}}, {"m", "", "by \x1b[2J", {}}}});
  details->lists.push_back({ErrorKind::kSlots, "b.onnx", {{"n", "", "by \xc2\x9b", {}}}});
  EXPECT_EQ(error_text({ErrorCode::kIo, "m", details}),
            "m\nkeys of the checkpoint: 2\n  n  used by Add 'a'\n  m  by \\x1b[2J\n"
            "b.onnx: slots of the graph: 1\n  n  by \\xc2\\x9b\n");
}

TEST(ErrorText, IsWhatAStreamPrints) {
  std::ostringstream stream;
  stream << Error{ErrorCode::kIo, "a.pt: cannot read"} << '!';
  EXPECT_EQ(stream.str(), "a.pt: cannot read!");
}

TEST(ErrorText, IsCompleteWhenAsked) {
  const std::string shorter = error_text(refusal(20));
  EXPECT_THAT(shorter, HasSubstr("missing from the checkpoint: 20\n"));
  EXPECT_THAT(shorter, HasSubstr("  ... and 12 more\n"));
  EXPECT_THAT(error_text(refusal(20), {.how_to_see_all = " (-v lists all)"}),
              HasSubstr("  ... and 12 more (-v lists all)\n"));
  EXPECT_THAT(shorter, Not(HasSubstr("w8")));
  const std::string all = error_text(refusal(20), {.max_items = kAllItems});
  EXPECT_THAT(all, HasSubstr("w19"));
  EXPECT_THAT(all, HasSubstr("nearest: v, u, t\n"));
  EXPECT_THAT(all, Not(HasSubstr("more")));
}

TEST(ErrorText, PutsASingleRemedyOnTheSameLine) {
  EXPECT_EQ(error_text({ErrorCode::kIo, "no room", nullptr}), "no room\n");
  auto details = std::make_shared<ErrorDetails>();
  details->remedies = {{RemedyOption::kOverwrite, "", "replaces it"}};
  const Error error{ErrorCode::kAlreadyExists, "a: exists", details};
  EXPECT_EQ(error_text(error), "a: exists; --overwrite replaces it\n");
}

TEST(ErrorText, QuotesValuesAsAShellTakesThem) {
  EXPECT_EQ(option_text({RemedyOption::kKey, "model.ema", ""}), "--key model.ema");
  EXPECT_EQ(option_text({RemedyOption::kInputs, "a b", ""}), "--inputs 'a b'");
  EXPECT_EQ(option_text({RemedyOption::kInputs, "it's", ""}), R"(--inputs 'it'\''s')");
  EXPECT_EQ(option_text({RemedyOption::kRename, R"(s/^a\./$(rm)/)", ""}),
            R"(--rename 's/^a\./$(rm)/')");
  EXPECT_EQ(option_text({RemedyOption::kPrefix, "-x", ""}), "--prefix=-x");
  EXPECT_EQ(option_text({RemedyOption::kPrefix, "", ""}), "--prefix ''");
  EXPECT_EQ(option_text({RemedyOption::kMap, "a\n'=\\b", ""}), R"(--map $'a\x0a\'=\\b')");
  EXPECT_EQ(option_text({RemedyOption::kMap, "\xff", ""}), R"(--map $'\xff')");
  EXPECT_EQ(option_text({RemedyOption::kMap, "\xc2\x9b", ""}), R"(--map $'\xc2\x9b')");
}

TEST(ErrorText, IsADocument) {
  const Error error = refusal(9);
  const auto document = nlohmann::json::parse(error_document(
      error_code_name(error.code), error.message, "graph.onnx", error.details.get()))["error"];
  EXPECT_EQ(document["code"], "not-found");
  EXPECT_EQ(document["file"], "graph.onnx");
  EXPECT_EQ(document["message"], error.message);
  ASSERT_EQ(document["lists"].size(), 2U);
  EXPECT_EQ(document["kind"], "missing");
  EXPECT_EQ(document["lists"][0]["kind"], "missing");
  EXPECT_EQ(document["lists"][0]["title"], list_title(error.details->lists[0]));
  EXPECT_EQ(document["lists"][0]["items"].size(), 9U);
  EXPECT_EQ(document["lists"][0]["items"][0]["candidates"][2], "t");
  EXPECT_EQ(document["lists"][1]["items"][0]["name"], "a\x1b[31mb");
  EXPECT_EQ(document["remedies"][0]["option"], "inputs");
  EXPECT_EQ(document["remedies"][0]["value"], "x,mask");
  const auto bare = nlohmann::json::parse(error_document("io", "\xff", "", nullptr))["error"];
  EXPECT_EQ(bare["kind"], "");
  EXPECT_TRUE(bare["lists"].is_array() && bare["lists"].empty());
}

TEST(ErrorKinds, HaveUniqueNames) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kErrorKinds; ++i) {
    const auto kind = static_cast<ErrorKind>(i);
    EXPECT_TRUE(names.insert(error_kind_name(kind)).second) << i;
    const std::string title = list_title({kind, "node", {}});
    EXPECT_EQ(title.find("node") == 0, kind != ErrorKind::kContradiction) << title;
  }
  for (std::size_t i = 0; i < kRemedyOptions; ++i) {
    EXPECT_TRUE(names.insert(option_name(static_cast<RemedyOption>(i))).second) << i;
  }
}

TEST(ErrorKinds, AreThoseOfTheFirstListUnlessStated) {
  EXPECT_EQ(kind_of(nullptr), ErrorKind::kNone);
  ErrorDetails details;
  EXPECT_EQ(kind_of(&details), ErrorKind::kNone);
  details.lists.push_back({ErrorKind::kUnused, "", {}});
  EXPECT_EQ(kind_of(&details), ErrorKind::kUnused);
  const Error stated = of_kind(ErrorKind::kNotLinked,
                               {ErrorCode::kIo, "m", std::make_shared<ErrorDetails>(details)});
  EXPECT_EQ(kind_of(stated.details.get()), ErrorKind::kNotLinked);
  EXPECT_EQ(stated.details->lists.size(), 1U);
}

}  // namespace
}  // namespace onnx_external
