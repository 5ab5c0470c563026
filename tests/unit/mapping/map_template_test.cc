#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/graph_facts.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(MapTemplate, ListsOpenSlotsWithKeysOfFittingShape) {
  MappingCase c;
  c.open("a.weight");
  c.open("a.gamma", {4, 3});
  c.key("a.weight");
  c.key("b", {4, 3});
  c.key("a.gamm", {4, 3});
  c.key("c", {3, 4});
  c.key("d", {12});
  const MapTemplate found = map_template(c.graph, c.keys, c.options);
  EXPECT_THAT(found.map, ElementsAre(MapEntry{"a.weight", "a.weight"}));
  ASSERT_THAT(found.open, SizeIs(1));
  EXPECT_EQ(found.open[0].form, "FLOAT [4, 3]");
  const Recipe transposed{RecipeStep::transpose()};
  EXPECT_THAT(found.open[0].candidates,
              ElementsAre(MapEntry{"a.gamma", "a.gamm"}, MapEntry{"a.gamma", "b"},
                          MapEntry{"a.gamma", "c", transposed}));
}

TEST(MapTemplate, HasTheSlotsThatARefusalLists) {
  MappingCase c;
  c.open("w");
  c.slot("kept", SlotKind::kInitializer, SymbolicShape{4});
  c.key("w");
  c.key("other", {4});
  EXPECT_THAT(map_template(c.graph, c.keys, c.options).open, IsEmpty());
  ErrorDetails refusal;
  refusal.lists.push_back({ErrorKind::kKeys, "", {{"kept", "", "", {}}, {"other", "", "", {}}}});
  const MapTemplate found = map_template(c.graph, c.keys, c.options, &refusal);
  ASSERT_THAT(found.open, SizeIs(1));
  EXPECT_THAT(found.open[0].candidates, ElementsAre(MapEntry{"kept", "other"}));
}

TEST(MapTemplate, IsReadAsAMapOfWhatWasFound) {
  const TempDir dir;
  const std::vector<MapEntry> map{{"a", "b"}};
  const std::vector<OpenSlot> open{{"c", "FLOAT [2]", {{"c", "d"}}}, {"e", "of unknown shape", {}}};
  const std::string text = map_file_text(map, open);
  EXPECT_EQ(text,
            "{\n  \"map\": {\n    \"a\": \"b\"\n  },\n  \"open\": {\n"
            "    \"c\": {\"form\": \"FLOAT [2]\", \"candidates\": [\"d\"]},\n"
            "    \"e\": {\"form\": \"of unknown shape\", \"candidates\": []}\n  }\n}\n");
  EXPECT_THAT(read_map_file(dir.write("m", text))->map, ElementsAre(MapEntry{"a", "b"}));
}

}  // namespace
}  // namespace onnx_external
