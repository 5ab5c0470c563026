#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/legacy_builder.h"
#include "support/open_bytes.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

// The three members of a good file: storage 10, its part 11, tensors 20 (of 10) and 21 (of 11).
struct Parts {
  std::int64_t storage_count = 1;
  std::int64_t numel = 4;
  std::int64_t view_offset = 1;
  std::int64_t tensor_storage = 10;
  std::int32_t rank = 1;
  std::int64_t size = 4;
  std::string id = "20";
};

std::string storages_member(const Parts& parts) {
  std::string text = PickleBuilder().proto().integer(parts.storage_count).stop().bytes();
  PickleBuilder entry;
  entry.proto().mark().integer(10).string("cpu").global("torch", "FloatStorage").tuple().stop();
  text += entry.bytes();
  put_le(text, static_cast<std::uint64_t>(parts.numel), 8);
  text += kFloats;
  PickleBuilder views;
  views.proto().empty_list().mark().integers({11, 10, parts.view_offset, 3}).append_items().stop();
  return text + views.bytes();
}

void add_tensor(std::string& text, std::int64_t key, std::int64_t storage, std::int32_t rank,
                std::int64_t size) {
  PickleBuilder entry;
  entry.proto().mark().integer(key).integer(storage).global("torch", "FloatTensor").tuple().stop();
  text += entry.bytes();
  put_le(text, static_cast<std::uint32_t>(rank), 4);
  put_le(text, 0xabababab, 4);
  for (const std::int64_t number : {size, std::int64_t{1}, std::int64_t{0}}) {
    put_le(text, static_cast<std::uint64_t>(number), 8);
  }
}

std::string tensors_member(const Parts& parts) {
  std::string text = PickleBuilder().proto().integer(2).stop().bytes();
  add_tensor(text, 20, parts.tensor_storage, parts.rank, parts.size);
  add_tensor(text, 21, 11, 1, 2);
  return text;
}

std::string object_member(const Parts& parts) {
  PickleBuilder object;
  object.proto().empty_dict().mark().string("w").string(parts.id).persistent_id();
  object.string("part").string("21").persistent_id();
  object.string("again").string("20").persistent_id().set_items().stop();
  return object.bytes();
}

std::string tar_of(const Parts& parts) {
  return tar_file({{"sys_info", "ignored"},
                   {"pickle", object_member(parts)},
                   {"tensors", tensors_member(parts)},
                   {"storages", storages_member(parts)}});
}

TEST(TorchTar, ReadsTensorsAndStorageViews) {
  const std::string file = tar_of({});
  const auto checkpoint = open_bytes(file);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "torch-tar");
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w", "part", "again"));
  EXPECT_EQ(checkpoint->plain_range(0)->offset, file.find(kFloats));
  EXPECT_EQ(checkpoint->plain_range(0), checkpoint->plain_range(2));
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
  EXPECT_EQ(read_all(*checkpoint, 1), f32({2, 3}));
}

TEST(TorchTar, TakesAContainersClassAndDropsItsSource) {
  PickleBuilder object;
  object.proto().mark().global("my", "Net").string("net.py").string("class Net").tuple();
  object.persistent_id().empty_tuple().new_object().empty_dict().string("w").string("20");
  object.persistent_id().op('s').build().stop();
  const auto checkpoint = open_bytes(tar_file({{"pickle", object.bytes()},
                                               {"tensors", tensors_member({})},
                                               {"storages", storages_member({})}}),
                                     {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->opaque_objects()[0].type, "my.Net");
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w"));
}

TEST(TorchTar, RefusesAnotherTarByName) {
  EXPECT_THAT(
      open_bytes(tar_file({{"a.txt", "hello"}})),
      FailsWith(ErrorCode::kUnsupported, "not a checkpoint of torch 0.1; it contains 'a.txt'"));
}

TEST(TorchTar, RefusesTwinMembers) {
  EXPECT_THAT(open_bytes(tar_file({{"pickle", "a"}, {"pickle", "b"}})),
              FailsWith(ErrorCode::kCorrupt, "byte 1024: two tar members have the name 'pickle'"));
}

TEST(TorchTar, RefusesADamagedHeader) {
  std::string file = tar_of({});
  file[10] = 'x';
  EXPECT_THAT(open_bytes(file), FailsWith(ErrorCode::kCorrupt, "byte 0: a tar header whose"));
}

TEST(TorchTar, RefusesAMemberPastTheEnd) {
  EXPECT_THAT(open_bytes(tar_file({{"pickle", std::string(600, 'x')}}).substr(0, 1024)),
              FailsWith(ErrorCode::kCorrupt, "tar member 'pickle' reaches past the end"));
}

TEST(TorchTar, RefusesMoreStoragesThanThereAre) {
  EXPECT_THAT(open_bytes(tar_of({.storage_count = 2})),
              FailsWith(ErrorCode::kCorrupt, "member 'storages': byte"));
}

TEST(TorchTar, RefusesANegativeNumberOfStorages) {
  EXPECT_THAT(open_bytes(tar_of({.storage_count = -1})),
              FailsWith(ErrorCode::kCorrupt, "the number of entries is not a valid int"));
}

TEST(TorchTar, RefusesAStorageThatReachesOutOfItsMember) {
  for (const std::int64_t numel : {std::int64_t{-1}, std::int64_t{10'000}, INT64_MAX}) {
    EXPECT_THAT(open_bytes(tar_of({.numel = numel})),
                FailsWith(ErrorCode::kCorrupt, "member 'storages': byte"));
  }
}

TEST(TorchTar, RefusesAViewThatReachesOutOfItsStorage) {
  EXPECT_THAT(open_bytes(tar_of({.view_offset = 2})),
              FailsWith(ErrorCode::kCorrupt, "a storage view that is not"));
}

TEST(TorchTar, RefusesATensorWithoutAStorage) {
  EXPECT_THAT(
      open_bytes(tar_of({.tensor_storage = 99})),
      FailsWith(ErrorCode::kCorrupt, "refers to the tensor or storage 20, which is missing"));
}

TEST(TorchTar, RefusesATensorThatReachesOutOfItsStorage) {
  EXPECT_THAT(open_bytes(tar_of({.size = 5})),
              FailsWith(ErrorCode::kCorrupt, "tensor 'w': shape [5]"));
}

TEST(TorchTar, RejectsAnInvalidRank) {
  for (const std::int32_t rank : {-1, 65, INT32_MAX}) {
    EXPECT_THAT(open_bytes(tar_of({.rank = rank})),
                FailsWith(ErrorCode::kCorrupt, "a tensor of " + std::to_string(rank)));
  }
}

TEST(TorchTar, RefusesAPersistentIdThatNamesNothing) {
  EXPECT_THAT(open_bytes(tar_of({.id = "77"})),
              FailsWith(ErrorCode::kCorrupt, "storage 77, which"));
  EXPECT_THAT(open_bytes(tar_of({.id = "x"})),
              FailsWith(ErrorCode::kUnsupported, "a tar file that torch did not write"));
}

}  // namespace
}  // namespace onnx_external
