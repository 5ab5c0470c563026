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
  EXPECT_THAT(pairs->map, ElementsAre(MapEntry{"a\"b", "module.a\"b"}, MapEntry{"w", "module.w"}));
  c.options.map = pairs->map;
  EXPECT_THAT(c.pairs(), ElementsAre("a\"b<-module.a\"b (map)", "w<-module.w (map)"));
}

TEST(MapFile, ReadsAPlainObject) {
  const TempDir dir;
  EXPECT_THAT(read_map_file(dir.write("m", R"({"slot": "key"})"))->map,
              ElementsAre(MapEntry{"slot", "key"}));
}

TEST(MapFile, CarriesRecipes) {
  const TempDir dir;
  const std::vector<MapEntry> written = {
      {"a", "b", {RecipeStep::transpose(), RecipeStep::cast()}},
      {"c", "d"},
      {"e",
       "f",
       {RecipeStep::permute({1, 0, -1}), RecipeStep::reshape({2, -1}), RecipeStep::reshape({}),
        RecipeStep::slice(0, -4, 128)}}};
  EXPECT_THAT(read_map_file(dir.write("m", map_file_text(written)))->map,
              ::testing::ElementsAreArray(written));
}

TEST(MapFile, HasEntriesForSingleModelsOfASet) {
  const std::vector<MapEntry> entries{{"w", "a", {}, "one.onnx"},
                                      {"w", "b", {RecipeStep::transpose()}, "two.onnx"},
                                      {"v", "c", {}, "one.onnx"}};
  const auto map = parse_map_file(map_file_text(entries));
  ASSERT_THAT(map, IsOk());
  EXPECT_THAT(map->map, ElementsAre(entries[0], entries[2], entries[1]));  // model by model
  const auto mixed = parse_map_file(
      R"({"map": {"x": "k"}, "models": {"one.onnx": {"w": "a"}}, "derived": {"k": "l"}})");
  ASSERT_THAT(mixed, IsOk());
  EXPECT_THAT(mixed->map, ElementsAre(MapEntry{"x", "k"}, MapEntry{"w", "a", {}, "one.onnx"}));
  EXPECT_EQ(mixed->derived.size(), 1U);
  MappingOptions options;
  options.map = entries;
  EXPECT_THAT(options_for_model(options, "two.onnx").map, ElementsAre(entries[1]));
}

TEST(MapFile, MayHaveASlotCalledModels) {
  const auto map = parse_map_file(R"({"models": "k"})");
  ASSERT_THAT(map, IsOk());
  EXPECT_THAT(map->map, ElementsAre(MapEntry{"models", "k"}));
}

TEST(MapFile, RefusesOtherForms) {
  const TempDir dir;
  for (const char* text :
       {"[]", "{\"a\": 1}", "{\"a\": \"b\", \"a\": \"c\"}", "", "{", R"({"a": {}})",
        R"({"a": {"key": "b", "recipe": ["fold"]}})",
        R"({"a": {"key": "b", "recipe": "transpose"}})", R"({"models": {"a.onnx": {"w": 1}}})",
        R"({"models": {"a.onnx": {"w": "k", "w": "l"}}})", R"({"models": {"a.onnx": "k"}})"}) {
    EXPECT_THAT(read_map_file(dir.write("m", text)), FailsWith(ErrorCode::kCorrupt, "/m: "))
        << text;
  }
  EXPECT_THAT(read_map_file(dir.path() / "none"), FailsWith(ErrorCode::kNotFound, "none"));
}

TEST(MapFile, RefusesEveryOtherRecipe) {
  const TempDir dir;
  std::string many = "\"transpose\"";
  for (std::size_t i = 0; i <= kMaxRecipeSteps; ++i) {
    many += ", \"transpose\"";
  }
  std::string deep = "1";
  for (std::size_t i = 0; i < kMaxRecipeRank; ++i) {
    deep += ", 1";
  }
  for (const std::string& steps :
       {std::string(R"("permute")"), std::string(R"({"transpose": []})"), std::string("[]"),
        std::string(R"({"permute": [0], "cast": []})"), std::string("{}"), std::string("null"),
        std::string(R"({"slice": 1})"), std::string(R"({"slice": [0, 1.0, 2]})"),
        std::string(R"({"slice": [0, "1", 2]})"), std::string(R"({"fold": [1]})"),
        std::string(R"({"reshape": [9223372036854775808]})"), "{\"reshape\": [" + deep + "]}",
        many}) {
    const std::string text = R"({"a": {"key": "b", "recipe": [)" + steps + "]}}";
    EXPECT_THAT(read_map_file(dir.write("m", text)),
                FailsWith(ErrorCode::kCorrupt, "m: slot 'a': a "))
        << text;
  }
  EXPECT_THAT(read_map_file(dir.write("m", R"({"a": {"key": "b", "recpie": []}})")),
              FailsWith(ErrorCode::kCorrupt, "slot 'a': its key must be"));
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
    EXPECT_THAT(parse_rename(text),
                FailsWith(ErrorCode::kInvalidArgument, "does not have the form"))
        << text;
  }
  EXPECT_FALSE(parse_rename("s/(/b/").has_value());
  EXPECT_THAT(parse_rename("s/(a)/b$1/"),
              FailsWith(ErrorCode::kInvalidArgument,
                        R"(in the replacement, a group is written \1, not $1)"));
  EXPECT_FALSE(parse_rename(R"(s/a/\9/)").has_value());
}

}  // namespace
}  // namespace onnx_external
