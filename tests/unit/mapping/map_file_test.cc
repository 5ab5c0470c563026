#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(MapFile, RepeatsTheMappingThatItWasWrittenFrom) {
  MappingCase c;
  c.open("a\"b");
  c.open("w");
  c.key("module.w");
  c.key("module.a\"b");
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  std::vector<MapEntry> written;
  for (const MappedPair& pair : mapping->pairs) {
    written.push_back({c.graph.slots[pair.slot].name, c.keys.keys[pair.key].name, {}});
  }
  written.push_back(written.front());  // a slot of two subgraphs
  const TempDir dir;
  const auto pairs = read_map_file(dir.write("map.json", map_file_text(written)));
  ASSERT_THAT(pairs, IsOk());
  EXPECT_THAT(*pairs, ElementsAre(MapEntry{"a\"b", "module.a\"b"}, MapEntry{"w", "module.w"}));
  c.options.map = *pairs;
  EXPECT_THAT(c.pairs(), ElementsAre("a\"b<-module.a\"b (map)", "w<-module.w (map)"));
}

TEST(MapFile, ReadsAPlainObject) {
  const TempDir dir;
  EXPECT_THAT(*read_map_file(dir.write("m", R"({"slot": "key"})")),
              ElementsAre(MapEntry{"slot", "key"}));
}

TEST(MapFile, CarriesRecipes) {
  const TempDir dir;
  const std::vector<MapEntry> written = {{"a", "b", {RecipeStep::kTranspose, RecipeStep::kCast}},
                                         {"c", "d"}};
  EXPECT_THAT(*read_map_file(dir.write("m", map_file_text(written))),
              ::testing::ElementsAreArray(written));
}

TEST(MapFile, RefusesOtherForms) {
  const TempDir dir;
  for (const char* text : {"[]", "{\"a\": 1}", "{\"a\": \"b\", \"a\": \"c\"}", "", "{",
                           R"({"a": {}})", R"({"a": {"key": "b", "recipe": ["fold"]}})",
                           R"({"a": {"key": "b", "recipe": "transpose"}})"}) {
    EXPECT_THAT(read_map_file(dir.write("m", text)), FailsWith(ErrorCode::kCorrupt, "/m: "))
        << text;
  }
  EXPECT_THAT(read_map_file(dir.path() / "none"), FailsWith(ErrorCode::kNotFound, "none"));
}

TEST(MapFile, RefusesAByteOrderMarkAndNulBytes) {
  const TempDir dir;
  const std::string map = R"({"a": "b"})";
  EXPECT_THAT(read_map_file(dir.write("m", "\xEF\xBB\xBF" + map)),
              FailsWith(ErrorCode::kCorrupt, "/m: byte 1: a byte order mark"));
  EXPECT_THAT(read_map_file(dir.write("m", map + '\0' + map)),
              FailsWith(ErrorCode::kCorrupt, "/m: byte 11: a NUL byte"));
}

TEST(Rename, ReadsTheFormsOfSed) {
  const auto plain = parse_rename("s/^a/b/");
  ASSERT_THAT(plain, IsOk());
  EXPECT_EQ(plain->pattern, "^a");
  EXPECT_EQ(plain->replacement, "b");
  EXPECT_FALSE(plain->every);
  const auto other = parse_rename(R"(s|a/(b)|\1\||g)");
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->pattern, "a/(b)");
  EXPECT_EQ(other->replacement, R"(\1|)");
  EXPECT_TRUE(other->every);
}

TEST(Rename, RefusesOtherForms) {
  for (const char* text : {"", "s", "s/a", "s/a/b", "s//b/", "y/a/b/", "s/a/b/x"}) {
    EXPECT_THAT(parse_rename(text), FailsWith(ErrorCode::kInvalidArgument, "the form is")) << text;
  }
  EXPECT_FALSE(parse_rename("s/(/b/").has_value());
  EXPECT_THAT(parse_rename("s/(a)/b$1/"),
              FailsWith(ErrorCode::kInvalidArgument, R"(written \1 in the replacement, not $1)"));
  EXPECT_FALSE(parse_rename(R"(s/a/\9/)").has_value());
}

}  // namespace
}  // namespace onnx_external
