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

TEST(MappingKeysOf, AReshapedViewOfATransposedOneIsTheSameBytes) {
  const std::vector<std::int64_t> turned{1, 2};
  const std::vector<std::int64_t> deeper{1, 7, 2};
  const MappingKeys keys = keys_of(torch_zip({
      {.name = "t", .shape = {2, 2}, .bytes = f32({1, 2, 3, 4}), .strides = turned},
      {.name = "t2", .shape = {2, 1, 2}, .strides = deeper, .shares = "t"},
  }));
  EXPECT_EQ(keys.keys[0].bytes_id, keys.keys[1].bytes_id);
}

TEST(MappingKeysOf, BigEndianElementsOfAnotherSizeAreNotTheSameBytes) {
  const auto keys = [](const std::string& order) {
    return keys_of(
               torch_zip(
                   {{.name = "a", .dtype = DType::kFloat8E4M3Fn, .shape = {8}, .bytes = "abcdefgh"},
                    {.name = "narrow", .dtype = DType::kUInt16, .shape = {4}, .shares = "a"},
                    {.name = "wide", .dtype = DType::kUInt32, .shape = {2}, .shares = "a"}},
                   {.byte_order = order}))
        .keys;
  };
  const auto big = keys("big");
  EXPECT_NE(big[0].bytes_id, big[1].bytes_id);
  EXPECT_NE(big[1].bytes_id, big[2].bytes_id);
  const auto little = keys("little");
  EXPECT_EQ(little[0].bytes_id, little[1].bytes_id);
  EXPECT_EQ(little[1].bytes_id, little[2].bytes_id);
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
