#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/legacy_builder.h"
#include "support/open_bytes.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

TEST(TorchLegacy, LeavesStoragesWhereTheyAre) {
  const std::string file = legacy_file(legacy_object(), {{"7", kFloats}});
  const auto checkpoint = open_bytes(file);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "torch-legacy");
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w"));
  EXPECT_EQ(checkpoint->plain_range(0), (FileRange{0, file.size() - 16, 16}));
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

TEST(TorchLegacy, IgnoresBytesBehindTheLastBlock) {
  EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {{"7", kFloats}}, {.tail = "more"})), IsOk());
}

TEST(TorchLegacy, ReadsAnOldStorageViewAsPartOfItsRoot) {
  PickleBuilder object;
  object.proto().empty_dict().string("w");
  put_legacy_tensor(object, "7", 4, 1, 1, [&] {
    object.mark().string("8").integer(1).integer(3).tuple();  // elements 1 to 3; then offset 1
  });
  const auto checkpoint = open_bytes(legacy_file(object.op('s').stop().bytes(), {{"7", kFloats}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({3}));
}

TEST(TorchLegacy, ReadsAViewThatTwoPersistentIdsShare) {
  PickleBuilder object;
  object.proto().empty_dict().mark().string("v").global("torch._utils", "_rebuild_tensor").mark();
  put_legacy_id(object, "7", 4, [&] { object.mark().string("8").integer(1).integer(3).tuple(); });
  object.put(0).persistent_id().integer(0).integers({3}).integers({1}).tuple().reduce();
  object.string("w").global("torch._utils", "_rebuild_tensor").mark();
  object.get(0).persistent_id().integer(0).integers({3}).integers({1}).tuple().reduce();
  const auto checkpoint =
      open_bytes(legacy_file(object.set_items().stop().bytes(), {{"7", kFloats}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({2, 3, 4}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({2, 3, 4}));
}

TEST(TorchLegacy, RefusesAKeyThatItGivesToAView) {
  PickleBuilder object;
  object.proto().empty_dict().mark().string("v");
  put_legacy_tensor(object, "7", 4, 0, 3,
                    [&] { object.mark().string("8").integer(1).integer(3).tuple(); });
  object.string("w");
  put_legacy_tensor(object, "view 0:4:3", 4, 0, 3);
  EXPECT_THAT(open_bytes(legacy_file(object.set_items().stop().bytes(),
                                     {{"7", kFloats}, {"view 0:4:3", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "'view 0:4:3', which is the name of a view"));
}

TEST(TorchLegacy, RefusesAViewThatReachesOutOfItsRoot) {
  PickleBuilder object;
  object.proto().empty_dict().string("w");
  put_legacy_tensor(object, "7", 4, 0, 1,
                    [&] { object.mark().string("8").integer(2).integer(3).tuple(); });
  EXPECT_THAT(open_bytes(legacy_file(object.op('s').stop().bytes(), {{"7", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "storage '7': its view metadata"));
}

TEST(TorchLegacy, RefusesATensorThatReachesOutOfItsView) {
  PickleBuilder object;
  object.proto().empty_dict().string("w");
  put_legacy_tensor(object, "7", 4, 0, 4,
                    [&] { object.mark().string("8").integer(0).integer(3).tuple(); });
  EXPECT_THAT(open_bytes(legacy_file(object.op('s').stop().bytes(), {{"7", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "reach outside its record of 12 bytes"));
}

TEST(TorchLegacy, ReadsWhatPython2Wrote) {
  PickleBuilder object;  // OrderedDict([['w', tensor]]), short strings, four arguments
  object.proto().global("collections", "OrderedDict").empty_list().mark().empty_list().mark();
  object.raw("U\x01w").global("torch._utils", "_rebuild_tensor").mark();
  object.mark()
      .raw("U\x07storage")
      .global("torch", "FloatStorage")
      .raw(
          "U\x01"
          "7U\x03"
          "cpu");
  object.integer(4).none().tuple().persistent_id().op('K').op('\0');
  object.integers({2, 2}).integers({2, 1}).tuple().reduce();
  object.append_items().append_items().op('\x85').reduce().stop();
  const auto checkpoint = open_bytes(legacy_file(object.bytes(), {{"7", kFloats}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w"));
  EXPECT_EQ(checkpoint->tensors()[0].shape, (Shape{2, 2}));
}

TEST(TorchLegacy, TakesAModulesClassAndDropsItsSource) {
  PickleBuilder object;
  object.proto().mark().string("module").global("my", "Net").string("net.py").string("class Net");
  object.tuple().persistent_id().empty_tuple().new_object().empty_dict().string("w");
  put_legacy_tensor(object, "7", 4, 0, 4);
  object.op('s').build().stop();
  const auto checkpoint = open_bytes(legacy_file(object.bytes(), {{"7", kFloats}}),
                                     {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_EQ(checkpoint->opaque_objects().size(), 1U);
  EXPECT_EQ(checkpoint->opaque_objects()[0].type, "my.Net");
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w"));
}

TEST(TorchLegacy, ReadsAnObjectLargerThanOneRead) {
  PickleBuilder object;
  object.proto().empty_dict().mark().string("text").string(std::string(3 << 20, 'x'));
  object.string("w");
  put_legacy_tensor(object, "7", 4, 0, 4);
  object.set_items().stop();
  const auto checkpoint = open_bytes(legacy_file(object.bytes(), {{"7", kFloats}}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

TEST(TorchLegacy, RefusesAnotherVersion) {
  EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {{"7", kFloats}}, {.version = 1002})),
              FailsWith(ErrorCode::kUnsupported, "byte 15: a legacy torch file whose protocol"));
}

TEST(TorchLegacy, RejectsSystemInformationThatIsNotADict) {
  EXPECT_THAT(
      open_bytes(legacy_file(legacy_object(), {{"7", kFloats}}, {.dict_as_system_info = false})),
      FailsWith(ErrorCode::kCorrupt, "the system information is not a dict"));
}

TEST(TorchLegacy, RefusesAListThatLacksAStorage) {
  EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {})),
              FailsWith(ErrorCode::kCorrupt, "the list of storages lacks '7'; copy or download"));
}

TEST(TorchLegacy, RefusesTwinKeys) {
  EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {{"7", kFloats}, {"7", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "the list of storages names '7' twice"));
}

TEST(TorchLegacy, RefusesAStorageThatNobodyUses) {
  EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {{"5", kFloats}, {"7", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "names '5', which no tensor uses"));
}

TEST(TorchLegacy, RefusesABlockOfAnotherCount) {
  for (const std::int64_t count : {std::int64_t{3}, std::int64_t{1} << 61, INT64_MAX}) {
    EXPECT_THAT(open_bytes(legacy_file(legacy_object(), {{"7", kFloats, count}})),
                FailsWith(ErrorCode::kCorrupt, "storage '7': byte"));
  }
}

TEST(TorchLegacy, RefusesABlockThatTheFileEndsIn) {
  std::string file = legacy_file(legacy_object(), {{"7", kFloats}});
  file.pop_back();
  EXPECT_THAT(open_bytes(file),
              FailsWith(ErrorCode::kCorrupt,
                        "storage '7': byte " + std::to_string(file.size() - 15) +
                            ": cannot read its bytes: 16 bytes are needed, but 15 are left"));
}

TEST(TorchLegacy, RefusesAFileCutOffAnywhere) {
  const std::string file = legacy_file(legacy_object(), {{"7", kFloats}});
  for (std::size_t size = kLegacyMagicPickle.size(); size < file.size(); ++size) {
    EXPECT_THAT(open_bytes(file.substr(0, size)), FailsWith(ErrorCode::kCorrupt, "byte ")) << size;
  }
}

TEST(TorchLegacy, RefusesReferencesOfTwoSizes) {
  PickleBuilder object;
  object.proto().empty_dict().mark().string("v");
  put_legacy_tensor(object, "7", 4, 0, 4);
  object.string("w");
  put_legacy_tensor(object, "7", 5, 0, 4);
  EXPECT_THAT(
      open_bytes(legacy_file(object.set_items().stop().bytes(), {{"7", kFloats}})),
      FailsWith(ErrorCode::kCorrupt, "its storage '7' has 16 bytes, but the pickle says 20"));
}

TEST(TorchLegacy, RefusesANegativeNumberOfElements) {
  PickleBuilder object;
  object.proto().empty_dict().string("w");
  put_legacy_tensor(object, "7", -4, 0, 4);
  EXPECT_THAT(open_bytes(legacy_file(object.op('s').stop().bytes(), {{"7", kFloats}})),
              FailsWith(ErrorCode::kCorrupt, "does not have a valid number of elements"));
}

TEST(TorchLegacy, RefusesAPersistentIdOfAnotherKind) {
  PickleBuilder object;
  object.proto().empty_dict().string("w").string("7").persistent_id().op('s').stop();
  EXPECT_THAT(open_bytes(legacy_file(object.bytes(), {})),
              FailsWith(ErrorCode::kCorrupt, "a persistent id: its storage is not ('storage'"));
}

TEST(TorchLegacy, MayBeAShard) {
  const TempDir dir;
  dir.write("a.bin", legacy_file(legacy_object(), {{"7", kFloats}}));
  const std::vector<std::filesystem::path> paths{
      dir.write("x.index.json", R"({"weight_map": {"w": "a.bin"}})")};
  const auto checkpoint = open_checkpoint(paths);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "sharded torch-legacy");
}

TEST(TorchLegacy, IsFoundInAFolder) {
  const TempDir dir;
  dir.write("a.pth", legacy_file(legacy_object(), {{"7", kFloats}}));
  const std::vector<std::filesystem::path> paths{dir.path()};
  EXPECT_THAT(open_checkpoint(paths), IsOk());
}

}  // namespace
}  // namespace onnx_external
