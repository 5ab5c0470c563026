#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_external/mapping.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

MappingKeys keys_of(const std::string& bytes) {
  const TempDir dir;
  const std::vector<std::filesystem::path> paths{dir.write("c.pt", bytes)};
  const auto checkpoint = open_checkpoint(paths);
  EXPECT_THAT(checkpoint, IsOk());
  auto keys = mapping_keys(*checkpoint);
  EXPECT_THAT(keys, IsOk());
  return *std::move(keys);
}

TEST(MappingKeysOf, TheSameRangeOfAStorageIsTheSameBytes) {
  const MappingKeys keys = keys_of(torch_zip({
      {.name = "a", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})},
      {.name = "tied", .shape = {2, 2}, .shares = "a"},
      {.name = "flat", .shape = {4}, .shares = "a"},
      {.name = "part", .shape = {2}, .offset = 1, .shares = "a"},
      {.name = "first", .shape = {2}, .shares = "a"},
      {.name = "other", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})},
  }));
  ASSERT_EQ(keys.keys.size(), 6U);
  EXPECT_EQ(keys.keys[0].shape, (Shape{2, 2}));
  EXPECT_EQ(keys.keys[0].bytes_id, keys.keys[1].bytes_id);
  EXPECT_EQ(keys.keys[0].bytes_id, keys.keys[2].bytes_id);
  EXPECT_NE(keys.keys[0].bytes_id, keys.keys[3].bytes_id);
  EXPECT_NE(keys.keys[0].bytes_id, keys.keys[4].bytes_id);
  EXPECT_NE(keys.keys[0].bytes_id, keys.keys[5].bytes_id) << "another storage, though equal today";
}

TEST(MappingKeysOf, ATransposedViewIsNotTheSameBytes) {
  const MappingKeys keys = keys_of(torch_zip({
      {.name = "a", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4})},
      {.name = "t", .shape = {2, 2}, .strides = std::vector<std::int64_t>{1, 2}, .shares = "a"},
      {.name = "t2", .shape = {2, 2}, .strides = std::vector<std::int64_t>{1, 2}, .shares = "a"},
  }));
  EXPECT_NE(keys.keys[0].bytes_id, keys.keys[1].bytes_id);
  EXPECT_EQ(keys.keys[1].bytes_id, keys.keys[2].bytes_id);
}

TEST(MappingKeysOf, EmptyTensorsAreNeverTied) {
  const MappingKeys keys = keys_of(torch_zip({
      {.name = "a", .shape = {0, 3}, .bytes = ""},
      {.name = "b", .shape = {0}, .shares = "a"},
  }));
  EXPECT_FALSE(keys.keys[0].bytes_id.has_value());
  EXPECT_FALSE(keys.keys[1].bytes_id.has_value());
}

}  // namespace
}  // namespace onnx_external
