#include "checkpoint/container/zip_archive.h"

#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

Result<ZipArchive> open_zip(const std::string& bytes) {
  const TempDir dir;
  auto file = SourceFile::open(dir.write("a.pt", bytes));
  return file ? ZipArchive::open(*file) : fail(file.error());
}

// An archive of two records, the first one changed by the test.
std::string with_first(ZipRecord record, const std::function<void(ZipEnd&)>& end = {}) {
  ZipBuilder zip;
  if (record.name.empty()) {
    record.name = "a/first";
  }
  if (record.data.empty()) {
    record.data = "first bytes";
  }
  zip.add(record);
  zip.add({.name = "a/second", .data = "second"});
  return zip.finish(end);
}

TEST(ZipArchive, ReadsStoredAndDeflatedRecordsWithAndWithoutDescriptors) {
  ZipBuilder zip;
  const std::string text(5000, 'x');
  zip.add({.name = "my model/x", .data = text});
  zip.add({.name = "my model/y", .data = text, .deflated = true});
  zip.add({.name = "my model/z", .data = text, .deflated = true, .descriptor = false});
  zip.add({.name = "my model/", .data = "", .alignment = 0});
  zip.add({.name = "my model/empty", .data = ""});
  const TempDir dir;
  auto archive = ZipArchive::open(*SourceFile::open(dir.write("a.pt", zip.finish())));
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->root(), "my model");
  for (const char* name : {"x", "y", "z"}) {
    ASSERT_NE(archive->find(name), nullptr);
    EXPECT_EQ(archive->read_record(*archive->find(name), 5000).value(), text);
  }
  EXPECT_EQ(archive->find("x")->data_offset % 64, 0U);
  EXPECT_EQ(archive->read_record(*archive->find("empty"), 0).value(), "");
  EXPECT_EQ(archive->find("X"), nullptr);
  EXPECT_THAT(archive->read_record(*archive->find("x"), 4999),
              FailsWith(ErrorCode::kUnsupported, "more than the limit"));
}

TEST(ZipArchive, ReadsMoreThan65535Records) {
  ZipBuilder zip;
  for (int i = 0; i < 66'000; ++i) {
    zip.add({.name = "a/" + std::to_string(i), .data = "", .alignment = 0});
  }
  const auto archive = open_zip(zip.finish());
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->entries().size(), 66'000U);
}

TEST(ZipArchive, ReadsOffsetsAndSizesPast4GiBFromTheZip64Extra) {
  // The data lies near the start; only the way in which the directory spells numbers is tested.
  const auto bytes = with_first({.central_lie = [](ZipFields& fields) {
    put_le(fields.extra, 1, 2);
    put_le(fields.extra, 24, 2);
    put_le(fields.extra, fields.size, 8);
    put_le(fields.extra, fields.stored, 8);
    put_le(fields.extra, fields.offset, 8);
    fields.size = fields.stored = fields.offset = 0xffffffff;
  }});
  const auto archive = open_zip(bytes);
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->find("first")->size, 11U);
}

TEST(ZipArchive, IgnoresWhatTorchWritesIntoLocalZip64Extras) {
  const auto bytes = with_first({.local_lie = [](ZipFields& fields) {
    put_le(fields.extra, 1, 2);
    put_le(fields.extra, 8, 2);
    put_le(fields.extra, 12345, 8);  // miniz puts the offset there, without a size
  }});
  EXPECT_THAT(open_zip(bytes), IsOk());
}

TEST(ZipArchive, AcceptsACommentAndNoZip64Records) {
  EXPECT_THAT(open_zip(with_first({},
                                  [](ZipEnd& end) {
                                    end.zip64 = false;
                                    end.comment = "made by hand";
                                  })),
              IsOk());
}

TEST(ZipArchive, RefusesAnEndRecordInsideTheComment) {
  const std::string inner = with_first({});
  const auto bytes =
      with_first({}, [&](ZipEnd& end) { end.comment = inner.substr(inner.size() - 22); });
  EXPECT_THAT(open_zip(bytes), FailsWith(ErrorCode::kCorrupt, "second zip end record"));
}

TEST(ZipArchive, RefusesFilesThatAreCutOff) {
  const std::string good = with_first({});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(open_zip(good.substr(0, size)).has_value()) << size;
  }
}

TEST(ZipArchive, LeavesBytesBehindItUnreadAsTorchDoes) {
  const std::string good = with_first({});
  EXPECT_EQ(open_zip(good)->bytes_behind(), 0U);
  EXPECT_EQ(open_zip(good + "x")->bytes_behind(), 1U);
  EXPECT_EQ(open_zip(good + std::string(60'000, '\0'))->bytes_behind(), 60'000U);
  EXPECT_THAT(open_zip(good + std::string(70'000, 'x')),
              FailsWith(ErrorCode::kCorrupt, "no zip end record"));
}

TEST(ZipArchive, RefusesPrependedBytes) {
  EXPECT_FALSE(open_zip("x" + with_first({})).has_value());
  ZipBuilder zip;
  zip.add_raw("#!/bin/sh\n");
  zip.add({.name = "a/first", .data = "data"});
  EXPECT_THAT(open_zip(zip.finish()), FailsWith(ErrorCode::kCorrupt, "bytes before the first"));
}

TEST(ZipArchive, RefusesTwinNamesAlsoWhenOnlyTheirCaseDiffers) {
  EXPECT_THAT(open_zip(with_first({.name = "a/second"})),
              FailsWith(ErrorCode::kCorrupt, "two zip records have this name"));
  EXPECT_THAT(open_zip(with_first({.name = "a/SECOND"})),
              FailsWith(ErrorCode::kCorrupt, "two zip records have this name"));
}

TEST(ZipArchive, RefusesASecondRootFolderAndRecordsBesideIt) {
  EXPECT_THAT(open_zip(with_first({.name = "b/first"})),
              FailsWith(ErrorCode::kCorrupt, "outside the folder"));
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = "x"});
  zip.add({.name = "beside", .data = "y"});
  EXPECT_THAT(open_zip(zip.finish()), FailsWith(ErrorCode::kUnsupported, "is not in a folder"));
}

TEST(ZipArchive, TakesWholeNamesWhenTheFirstRecordLiesInNoFolder) {
  const auto archive = open_zip(with_first({.name = "first", .data = "x"}));
  ASSERT_THAT(archive, IsOk());
  EXPECT_EQ(archive->root(), "");
  ASSERT_NE(archive->find("first"), nullptr);
  EXPECT_EQ(archive->name_in_root(*archive->find("first")), "first");
}

TEST(ZipArchive, ReadsARangeOfAFileAsAFile) {
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = "inner"});
  const std::string inner = zip.finish();
  const TempDir dir;
  const auto file = SourceFile::open(dir.write("f", "before" + inner + "after"));
  const auto slice = SourceFile::slice(*file, 6, inner.size());
  ASSERT_THAT(slice, IsOk());
  const auto archive = ZipArchive::open(*slice);
  ASSERT_THAT(archive, IsOk());
  ASSERT_NE(archive->find("data.pkl"), nullptr);
  EXPECT_EQ(archive->read_record(*archive->find("data.pkl"), 100).value(), "inner");
}

TEST(ZipArchive, RefusesANulInAName) {
  EXPECT_THAT(open_zip(with_first({.name = std::string("a/x\0y", 5)})),
              FailsWith(ErrorCode::kCorrupt, "holds a NUL"));
}

TEST(ZipArchive, RefusesALocalNameThatDiffers) {
  EXPECT_THAT(open_zip(with_first({.local_lie = [](ZipFields& f) { f.name = "a/evil!"; }})),
              FailsWith(ErrorCode::kCorrupt, "another name"));
  EXPECT_THAT(open_zip(with_first({.local_lie = [](ZipFields& f) { f.name += "x"; }})),
              FailsWith(ErrorCode::kCorrupt, "another name"));
}

TEST(ZipArchive, RefusesLocalSizesOrCrcThatDifferWhenNoDescriptorFollows) {
  const auto lie = [](auto change) {
    return with_first({.descriptor = false, .local_lie = change});
  };
  EXPECT_THAT(open_zip(lie([](ZipFields&) {})), IsOk());
  EXPECT_THAT(open_zip(lie([](ZipFields& f) { f.crc ^= 1; })),
              FailsWith(ErrorCode::kCorrupt, "differ from those in the zip directory"));
  EXPECT_THAT(open_zip(lie([](ZipFields& f) { f.size += 1; })),
              FailsWith(ErrorCode::kCorrupt, "differ from those in the zip directory"));
  EXPECT_THAT(open_zip(lie([](ZipFields& f) { f.stored -= 1; })),
              FailsWith(ErrorCode::kCorrupt, "differ from those in the zip directory"));
}

TEST(ZipArchive, RefusesEncryptionAndPatchFlagsInEitherHeader) {
  for (const int flag : {0x1, 0x20, 0x40}) {
    const auto set = [flag](ZipFields& fields) {
      fields.flags = static_cast<std::uint16_t>(fields.flags | flag);
    };
    EXPECT_THAT(open_zip(with_first({.central_lie = set})),
                FailsWith(ErrorCode::kUnsupported, "encrypted or patched"));
    EXPECT_THAT(open_zip(with_first({.local_lie = set})),
                FailsWith(ErrorCode::kUnsupported, "encrypted or patched"));
  }
}

TEST(ZipArchive, RefusesOtherMethodsAndMethodsThatDiffer) {
  EXPECT_THAT(open_zip(with_first({.central_lie = [](ZipFields& f) { f.method = 14; }})),
              FailsWith(ErrorCode::kUnsupported, "compression method 14"));
  EXPECT_THAT(open_zip(with_first({.local_lie = [](ZipFields& f) { f.method = 8; }})),
              FailsWith(ErrorCode::kCorrupt, "the compression method in its header"));
}

TEST(ZipArchive, RefusesAStoredRecordWithTwoSizes) {
  EXPECT_THAT(open_zip(with_first({.central_lie = [](ZipFields& f) { f.size = 5; }})),
              FailsWith(ErrorCode::kCorrupt, "two sizes"));
}

TEST(ZipArchive, RefusesAnImpossibleInflateRatio) {
  EXPECT_THAT(open_zip(with_first(
                  {.deflated = true, .central_lie = [](ZipFields& f) { f.size = 100'000'000; }})),
              FailsWith(ErrorCode::kCorrupt, "cannot hold the declared"));
}

TEST(ZipArchive, RefusesRecordsThatOverlap) {
  EXPECT_THAT(open_zip(with_first({.central_lie = [](ZipFields& f) { f.stored = f.size = 64; }})),
              FailsWith(ErrorCode::kCorrupt, "overlaps the one before it"));
  ZipBuilder twins;
  twins.add({.name = "a/x", .data = "data"});
  twins.add({.name = "a/y", .data = "data", .central_lie = [](ZipFields& f) { f.offset = 0; }});
  EXPECT_THAT(open_zip(twins.finish()), FailsWith(ErrorCode::kCorrupt, ""));
}

TEST(ZipArchive, RefusesRecordsOutsideTheFile) {
  EXPECT_THAT(
      open_zip(with_first({.central_lie = [](ZipFields& f) { f.stored = f.size = 1'000'000; }})),
      FailsWith(ErrorCode::kCorrupt, "runs past the file's data"));
  ZipBuilder zip;
  zip.add({.name = "a/x", .data = "data"});
  zip.add(
      {.name = "a/y", .data = "data", .central_lie = [](ZipFields& f) { f.offset = 0x7fffffff; }});
  EXPECT_THAT(open_zip(zip.finish()),
              FailsWith(ErrorCode::kCorrupt, "byte 68: bytes that do not belong to a zip record"));
}

TEST(ZipArchive, RefusesAMissingOrShortZip64Extra) {
  EXPECT_THAT(open_zip(with_first({.central_lie = [](ZipFields& f) { f.offset = 0xffffffff; }})),
              FailsWith(ErrorCode::kCorrupt, "zip64 extra field is missing"));
  EXPECT_THAT(open_zip(with_first({.central_lie =
                                       [](ZipFields& f) {
                                         f.offset = 0xffffffff;
                                         put_le(f.extra, 1, 2);
                                         put_le(f.extra, 4, 2);
                                         put_le(f.extra, 0, 4);
                                       }})),
              FailsWith(ErrorCode::kCorrupt, "too short"));
}

TEST(ZipArchive, RefusesSeveralDisks) {
  EXPECT_THAT(open_zip(with_first({}, [](ZipEnd& end) { end.disk = 1; })),
              FailsWith(ErrorCode::kUnsupported, "split into several parts"));
  EXPECT_THAT(open_zip(with_first({.central_lie = [](ZipFields& f) { f.disk = 1; }})),
              FailsWith(ErrorCode::kUnsupported, "split into several parts"));
}

TEST(ZipArchive, RefusesEndRecordsThatLie) {
  const auto lie = [](auto change) { return open_zip(with_first({}, change)); };
  EXPECT_THAT(lie([](ZipEnd& e) { e.entries = 60'000; }),
              FailsWith(ErrorCode::kCorrupt, "do not fit"));
  EXPECT_THAT(lie([](ZipEnd& e) { e.entries = 1; }),
              FailsWith(ErrorCode::kCorrupt, "more than its 1 records"));
  EXPECT_THAT(lie([](ZipEnd& e) { e.zip64_entries = 1; }),
              FailsWith(ErrorCode::kCorrupt, "contradicts"));
  EXPECT_THAT(lie([](ZipEnd& e) { e.directory_offset += 1; }),
              FailsWith(ErrorCode::kCorrupt, "does not end at the end records"));
  EXPECT_THAT(lie([](ZipEnd& e) { e.directory_size = ~std::uint64_t{0}; }),
              FailsWith(ErrorCode::kCorrupt, ""));
  EXPECT_THAT(lie([](ZipEnd& e) { e.zip64_offset = ~std::uint64_t{0} - 3; }),
              FailsWith(ErrorCode::kCorrupt, "outside the file"));
}

TEST(ZipArchive, ReportsDamagedRecords) {
  ZipBuilder zip;
  zip.add({.name = "a/x", .data = "some data"});
  std::string bytes = zip.finish();
  bytes[zip.data_offset(0)] ^= 1;
  const TempDir dir;
  auto archive = ZipArchive::open(*SourceFile::open(dir.write("a.pt", bytes)));
  ASSERT_THAT(archive, IsOk());
  EXPECT_THAT(archive->read_record(*archive->find("x"), 100),
              FailsWith(ErrorCode::kCorrupt, "CRC-32 differs"));
}

TEST(ZipArchive, ReportsDeflateStreamsThatGiveOtherThanDeclared) {
  for (const int change : {-1, 1}) {
    const auto lie = [change](ZipFields& f) {
      f.size = f.size + static_cast<std::uint64_t>(change);
    };
    ZipBuilder zip;
    zip.add({.name = "a/x", .data = "some data", .deflated = true, .central_lie = lie});
    const TempDir dir;
    auto archive = ZipArchive::open(*SourceFile::open(dir.write("a.pt", zip.finish())));
    ASSERT_THAT(archive, IsOk());
    EXPECT_THAT(archive->read_record(*archive->find("x"), 100),
                FailsWith(ErrorCode::kCorrupt, "deflate stream"));
  }
}

}  // namespace
}  // namespace onnx_external
