#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/legacy_builder.h"
#include "support/open_bytes.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using namespace std::string_literals;

// {"w": a tensor whose storage put_bytes() pushes}.
std::string dump(const std::function<void(PickleBuilder&)>& put_bytes, int protocol = 3) {
  PickleBuilder pickle;
  pickle.proto(protocol).empty_dict().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().global("torch.storage", "_load_from_bytes");
  put_bytes(pickle);
  pickle.op('\x85').reduce().integer(0).integers({4}).integers({1});
  return pickle.boolean(false).ordered_dict().tuple().reduce().op('s').stop().bytes();
}

void put_bytes4(PickleBuilder& pickle, const std::string& bytes) {
  std::string length;
  put_le(length, bytes.size(), 4);
  pickle.op('B').raw(length).raw(bytes);
}

std::string utf8_of_latin1(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

void put_encoded(PickleBuilder& pickle, const std::string& text) {
  pickle.global("_codecs", "encode").string(text).string("latin1").op('\x86').reduce();
}

TEST(PickleFile, LeavesBytesWhereTheyAre) {
  const std::string nested = legacy_storage_file(kFloats);
  const std::string file = dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); });
  const auto checkpoint = open_bytes(file);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "pickle");
  EXPECT_THAT(names(*checkpoint), ::testing::ElementsAre("w"));
  EXPECT_EQ(checkpoint->plain_range(0)->offset, file.find(kFloats));
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

TEST(PickleFile, OfJoblibIsNamed) {
  PickleBuilder pickle;
  pickle.proto(4).empty_dict().string("w").global("joblib.numpy_pickle", "NumpyArrayWrapper");
  EXPECT_THAT(open_bytes(pickle.bytes() + std::string(64, '\xff')),
              FailsWith(ErrorCode::kUnsupported, "a joblib file, whose arrays are stored between"));
}

TEST(PickleFile, OfAnUnpackedTorchFileIsNamed) {
  PickleBuilder pickle;
  pickle.proto(2).empty_dict().string("w").global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().string("storage").global("torch", "FloatStorage").string("0").string("cpu");
  pickle.integer(4).tuple().persistent_id().integer(0).integers({4}).integers({1});
  pickle.boolean(false).ordered_dict().tuple().reduce().op('s').stop();
  EXPECT_THAT(open_bytes(pickle.bytes()),
              FailsWith(ErrorCode::kUnsupported,
                        "the pickle of an unpacked torch file (data.pkl); "
                        "pack its folder again (zip -0 -r m.pt FOLDER)"));
}

TEST(PickleFile, LeavesLargeBytesOutOfMemoryAndGoesOnBehindThem) {
  const std::string large = f32(std::vector<float>(1 << 20, 1.5F));
  PickleBuilder pickle;
  pickle.proto(4).empty_list().mark();
  for (const std::string& storage : {large, kFloats}) {
    pickle.global("torch._utils", "_rebuild_tensor").mark();
    pickle.global("torch.storage", "_load_from_bytes");
    put_bytes4(pickle, legacy_storage_file(storage));
    pickle.op('\x85').reduce().integer(1).integers({3}).integers({1}).tuple().reduce();
  }
  const auto checkpoint =
      open_bytes(pickle.append_items().stop().bytes(), {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1.5F, 1.5F, 1.5F}));
  EXPECT_EQ(read_all(*checkpoint, 1), f32({2, 3, 4}));
  EXPECT_TRUE(checkpoint->plain_range(1));
}

TEST(PickleFile, DecodesBytesThatProtocol2SpellsAsText) {
  const std::string nested = legacy_storage_file(kFloats);
  const auto checkpoint = open_bytes(
      dump([&](PickleBuilder& pickle) { put_encoded(pickle, utf8_of_latin1(nested)); }, 2));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_FALSE(checkpoint->plain_range(0));
  EXPECT_TRUE(checkpoint->storages()[0].computed);
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

TEST(PickleFile, TakesAPython2StringForBytes) {
  const std::string nested = legacy_storage_file(kFloats);
  const auto checkpoint = open_bytes(dump(
      [&](PickleBuilder& pickle) {
        std::string length;
        put_le(length, nested.size(), 4);
        pickle.op('T').raw(length).raw(nested);
      },
      2));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

TEST(PickleFile, SharesAStorageThatIsLoadedTwice) {
  PickleBuilder pickle;
  pickle.proto(3).empty_dict().mark();
  for (const std::string name : {"a", "b"}) {
    pickle.string(name).global("torch._utils", "_rebuild_tensor").mark();
    pickle.global("torch.storage", "_load_from_bytes");
    if (name == "a") {
      put_bytes4(pickle, legacy_storage_file(kFloats));
      pickle.put(0);
    } else {
      pickle.get(0);
    }
    pickle.op('\x85').reduce().integer(0).integers({4}).integers({1}).tuple().reduce();
  }
  const auto checkpoint = open_bytes(pickle.set_items().stop().bytes());
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->storages().size(), 1U);
  EXPECT_EQ(checkpoint->plain_range(0), checkpoint->plain_range(1));
}

TEST(PickleFile, RefusesTextThatIsNotLatin1) {
  EXPECT_THAT(open_bytes(dump([](PickleBuilder& pickle) { put_encoded(pickle, "\xe2\x82\xac"); })),
              FailsWith(ErrorCode::kUnsupported, "its storage comes from 'torch.storage._load"));
}

TEST(PickleFile, RejectsBytesThatAreNotATorchFile) {
  EXPECT_THAT(open_bytes(dump([](PickleBuilder& pickle) { put_bytes4(pickle, "hello"); })),
              FailsWith(ErrorCode::kUnsupported, "its storage comes from 'torch.storage._load"));
}

TEST(PickleFile, RefusesADamagedNestedFile) {
  std::string nested = legacy_storage_file(kFloats);
  nested.resize(nested.size() - 3);
  EXPECT_THAT(open_bytes(dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); })),
              FailsWith(ErrorCode::kCorrupt, ": nested torch file: storage '1': byte "));
}

TEST(PickleFile, DoesNotReachOutOfTheNestedFile) {
  std::string nested = legacy_storage_file(kFloats);
  nested.resize(nested.size() - 16);  // its block would lie in what follows
  EXPECT_THAT(
      open_bytes(dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); }) + kFloats),
      FailsWith(ErrorCode::kCorrupt, "16 bytes are needed, but 0 are left"));
}

TEST(PickleFile, RejectsANestedFileThatIsNotAStorage) {
  const std::string nested = legacy_file(legacy_object(), {{"7", kFloats}});
  EXPECT_THAT(open_bytes(dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); })),
              FailsWith(ErrorCode::kCorrupt, "nested torch file: it has no storage"));
}

TEST(PickleFile, RefusesLengthsPastTheEnd) {
  EXPECT_THAT(open_bytes("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s),
              FailsWith(ErrorCode::kCorrupt, "byte 11: cannot read a string"));
  EXPECT_THAT(open_bytes("\x80\x04]X\xff\xff\xff\x7f" + std::string(1000, 'x')),
              FailsWith(ErrorCode::kCorrupt, "byte 8: cannot read a string: 2147483647 bytes"));
}

TEST(PickleFile, RefusesAnEndWithoutStop) {
  EXPECT_THAT(open_bytes("\x80\x04]"s),
              FailsWith(ErrorCode::kCorrupt, "byte 3: the pickle ends without STOP"));
}

TEST(PickleFile, NamesTheByteOfABadOpcodeBehindBytesLeftOut) {
  const std::string nested = legacy_storage_file(kFloats);
  PickleBuilder pickle;
  pickle.proto(3);
  put_bytes4(pickle, nested);
  const std::size_t at = pickle.bytes().size();
  EXPECT_THAT(open_bytes(pickle.op('!').bytes() + "more"),
              FailsWith(ErrorCode::kCorrupt,
                        "byte " + std::to_string(at) + ": opcode '!': no such pickle opcode"));
}

TEST(PickleFile, ListsWhatItHoldsAndCallsNothing) {
  const auto checkpoint = open_bytes(
      "\x80\x04"
      "cposix\nsystem\nX\x02\x00\x00\x00ls\x85R."s,
      {.selection = Selection::kEverything});
  ASSERT_THAT(checkpoint, IsOk());
  ASSERT_FALSE(checkpoint->opaque_objects().empty());
  EXPECT_EQ(checkpoint->opaque_objects()[0].type, "posix.system");
}

TEST(PickleFile, IsRecognizedByItsFirstOpcodesInProtocols0And1) {
  for (const std::string& bytes : {"(dp0\n."s, "(lp0\n."s, "}q\x00."s, "]q\x00."s}) {
    EXPECT_THAT(open_bytes(bytes), FailsWith(ErrorCode::kNotFound, "no dict")) << bytes;
  }
}

// A zip file whose object is the storage of kFloats.
std::string zip_storage_file(bool deflated, const std::string& key = "0") {
  PickleBuilder object;
  object.proto().mark().string("storage").global("torch", "FloatStorage").string(key);
  object.string("cpu").integer(4).tuple().persistent_id().stop();
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = object.bytes()});
  zip.add({.name = "a/data/0", .data = kFloats, .deflated = deflated});
  return zip.finish();
}

TEST(PickleFile, ReadsANestedZipFile) {
  for (const bool deflated : {false, true}) {
    const std::string nested = zip_storage_file(deflated);
    const auto checkpoint =
        open_bytes(dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); }));
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
    EXPECT_EQ(checkpoint->plain_range(0).has_value(), !deflated);
  }
}

TEST(PickleFile, RefusesANestedZipFileWithoutItsStorage) {
  const std::string nested = zip_storage_file(false, "1");
  EXPECT_THAT(
      open_bytes(dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); })),
      FailsWith(ErrorCode::kCorrupt, ": nested torch file: its record 'data/1' is missing"));
}

TEST(PickleFile, RefusesANestedZipFileThatIsSpelledAsText) {
  const std::string text = utf8_of_latin1(zip_storage_file(false));
  EXPECT_THAT(open_bytes(dump([&](PickleBuilder& pickle) { put_encoded(pickle, text); }, 2)),
              FailsWith(ErrorCode::kUnsupported, "its storage comes from 'torch.storage._load"));
}

TEST(TorchZip, ReadsStoragesInsideItsPickle) {
  for (const bool deflated : {false, true}) {
    const std::string nested = legacy_storage_file(kFloats);
    ZipBuilder zip;
    zip.add({.name = "a/data.pkl",
             .data = dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); }),
             .deflated = deflated});
    zip.add({.name = "a/version", .data = "3\n"});
    const auto checkpoint = open_bytes(zip.finish());
    ASSERT_THAT(checkpoint, IsOk());
    EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
    EXPECT_EQ(checkpoint->plain_range(0).has_value(), !deflated);
  }
}

TEST(TorchLegacy, RefusesAKeyThatItGivesToAStorageInsideItsPickle) {
  PickleBuilder object;
  object.proto().empty_dict().string("w");
  put_legacy_tensor(object, "_load_from_bytes 0", 4, 0, 4);
  EXPECT_THAT(
      open_bytes(legacy_file(object.op('s').stop().bytes(), {{"_load_from_bytes 0", kFloats}})),
      FailsWith(ErrorCode::kCorrupt, "'_load_from_bytes 0' has the name of a nested storage"));
}

TEST(TorchLegacy, ReadsStoragesInsideItsPickle) {
  const std::string nested = legacy_storage_file(kFloats);
  const std::string object = dump([&](PickleBuilder& pickle) { put_bytes4(pickle, nested); });
  const auto checkpoint = open_bytes(legacy_file(object, {}));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "torch-legacy");
  EXPECT_EQ(read_all(*checkpoint, 0), kFloats);
}

}  // namespace
}  // namespace onnx_external
