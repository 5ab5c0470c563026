#include "save/record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

const std::string kJob(64, 'a');

class RecordFile : public testing::Test {
 protected:
  RecordWriter start(const WrittenRanges& written = WrittenRanges(3)) {
    auto record = RecordWriter::start(folder(), kJob, written).value();
    EXPECT_THAT(record.add(1, 0x1234, kRecordedBytes), IsOk());
    return record;
  }
  Directory folder() const { return Directory::open(dir_.path()).value(); }
  fs::path file() const { return dir_.path() / std::string(kRecordName); }
  void write(const std::string& text) { dir_.write(std::string(kRecordName), text); }
  // What it claims to be written; nothing if there is no record.
  std::optional<WrittenRanges> written(std::size_t parts = 3) const {
    const auto record = read_record(folder());
    EXPECT_THAT(record, IsOk());
    return record && *record ? std::optional((*record)->written(parts)) : std::nullopt;
  }
  std::optional<Publication> publication() const {
    const auto record = read_record(folder());
    EXPECT_THAT(record, IsOk());
    return record && *record ? (*record)->publication : std::nullopt;
  }
  // The record with this publication, and its text.
  std::string publish(const Publication& publication) {
    EXPECT_THAT(start().publish(publication, Sync::kFiles), IsOk());
    return read_text(file());
  }

  TempDir dir_;
};

Publication example() {
  return {"my \"data\"",
          "weights.bin",
          Overwrite::kAllow,
          {"a b.manifest.json", "c.manifest.json", "weights.1.bin"},
          {{"a b.onnx", "a b.manifest.json", {12, 0xdeadbeef}, ModelIdentity{7, 1}},
           {"c.onnx", "c.manifest.json", {0, 0}, std::nullopt}}};
}

TEST_F(RecordFile, HasTheDocumentedText) {
  (void)start();
  EXPECT_EQ(read_text(file()), "{\"record\": 1, \"job\": \"" + kJob +
                                   "\", \"check\": \"5c2ed61e\"}\n"
                                   "{\"part\": 1, \"crc32\": \"00001234\", "
                                   "\"check\": \"7d4095b7\"}\n");
}

TEST_F(RecordFile, ClaimsWhatWasAddedToIt) {
  (void)start({std::nullopt, std::nullopt, 7U});
  EXPECT_EQ(written(), (WrittenRanges{std::nullopt, 0x1234U, 7U}));
  EXPECT_EQ((*read_record(folder()))->job, kJob);
  EXPECT_EQ(publication(), std::nullopt);
}

TEST_F(RecordFile, HoldsLinesBackUntilTheyStandForEnoughBytes) {
  auto record = RecordWriter::start(folder(), kJob, WrittenRanges(3)).value();
  ASSERT_THAT(record.add(0, 1, kRecordedBytes - 1), IsOk());
  EXPECT_EQ(written(), WrittenRanges(3));
  ASSERT_THAT(record.add(2, 3, 1), IsOk());
  EXPECT_EQ(written(), (WrittenRanges{1U, std::nullopt, 3U}));
}

TEST_F(RecordFile, IgnoresATornLine) {
  (void)start();
  append(file(), "{\"part\": 2, \"crc32\": \"00000003\"");
  EXPECT_EQ(written(), (WrittenRanges{std::nullopt, 0x1234U, std::nullopt}));
}

TEST_F(RecordFile, IgnoresALineWithAnotherCheckSum) {
  (void)start();
  append(file(), "{\"part\": 2, \"crc32\": \"00000003\", \"check\": \"00000000\"}\n");
  EXPECT_EQ(written(), (WrittenRanges{std::nullopt, 0x1234U, std::nullopt}));
}

TEST_F(RecordFile, IgnoresAPartThatThePlanDoesNotHave) {
  (void)start();
  EXPECT_EQ(written(1), WrittenRanges(1));
}

TEST_F(RecordFile, NeverSaysMoreWhereverItIsCut) {
  const std::string whole = publish(example());
  const WrittenRanges all{std::nullopt, 0x1234U, std::nullopt};
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    const auto claimed = written();
    ASSERT_TRUE(!claimed || *claimed == WrittenRanges(3) || *claimed == all) << size;
    ASSERT_EQ(publication(), std::nullopt) << size;
  }
}

TEST_F(RecordFile, NeverSaysAnythingElseWhateverByteIsChanged) {
  const std::string whole = publish(example());
  const WrittenRanges all{std::nullopt, 0x1234U, std::nullopt};
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      write(changed);
      const auto claimed = written();
      ASSERT_TRUE(!claimed || *claimed == WrittenRanges(3) || *claimed == all) << i;
      const auto published = publication();
      ASSERT_TRUE(!published || *published == example()) << i;
    }
  }
}

TEST_F(RecordFile, IsNotReadThroughALinkOrFromAFifo) {
  (void)start();
  fs::rename(file(), dir_.path() / "elsewhere");
  fs::create_symlink("elsewhere", file());
  EXPECT_EQ(written(), std::nullopt);
  fs::remove(file());
  fs::create_hard_link(dir_.path() / "elsewhere", file());
  EXPECT_EQ(written(), std::nullopt);
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(written(), std::nullopt);
}

TEST_F(RecordFile, TakesThePlaceOfAnEarlierOne) {
  (void)publish(example());
  (void)start({5U, std::nullopt, std::nullopt});
  EXPECT_EQ(written(), (WrittenRanges{5U, 0x1234U, std::nullopt}));
  EXPECT_EQ(publication(), std::nullopt);
}

TEST_F(RecordFile, SaysWhatIsPublished) {
  (void)publish(example());
  EXPECT_EQ(publication(), example());
  EXPECT_EQ(written(), (WrittenRanges{std::nullopt, 0x1234U, std::nullopt}));
}

TEST_F(RecordFile, PublishesNothingUnderNamesThatNoSaveGives) {
  const PublishedModel model{"a.onnx", "a.manifest.json", {1, 2}, std::nullopt};
  PublishedModel climbs = model;
  climbs.name = "../a.onnx";
  PublishedModel upper = model;
  upper.name = "A.onnx";
  PublishedModel bare = model;
  bare.name = "a";
  for (const Publication& forged : std::vector<Publication>{{"data", "", {}, {}, {}},
                                                            {"data", "", {}, {}, {climbs}},
                                                            {"data", "", {}, {}, {model, upper}},
                                                            {"data", "", {}, {}, {model, bare}},
                                                            {"../x", "", {}, {}, {model}}}) {
    (void)publish(forged);
    EXPECT_EQ(publication(), std::nullopt);
  }
}

TEST_F(RecordFile, OfAnotherVersionIsRefused) {
  write("{\"record\": 2, \"check\": \"63e3d00f\"}\n");
  EXPECT_THAT(read_record(folder()), FailsWith(ErrorCode::kUnsupported, "version (record 2)"));
}

}  // namespace
}  // namespace onnx_external
