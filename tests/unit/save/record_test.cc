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
  return {Overwrite::kAllow,
          {"a b.1.manifest.json", "c.1.manifest.json", "weights.1.bin"},
          {{"weights.1.bin", 24, 1'700'000'000'123'456'789U}},
          {{"a b.onnx",
            {12, 0xdeadbeef},
            {"a b.1.manifest.json", 5, 6},
            ModelIdentity{7, 1},
            {{{"my \"data\"/manifest.json", 3, 4}, {{"my \"data\"/x", 1, 2}, {"y", 0, 0}}},
             {{"a b.manifest.json", 3, 4}, {}}}},
           {"c.onnx", {0, 0}, {"c.1.manifest.json", 7, 8}, std::nullopt, {}}}};
}

TEST_F(RecordFile, HasTheDocumentedText) {
  (void)start();
  EXPECT_EQ(read_text(file()), "{\"record\": 2, \"job\": \"" + kJob +
                                   "\", \"check\": \"1598031d\"}\n"
                                   "{\"part\": 1, \"crc32\": \"00001234\", "
                                   "\"check\": \"7d4095b7\"}\n");
}

TEST_F(RecordFile, ClaimsWhatWasAddedToIt) {
  (void)start({std::nullopt, std::nullopt, 7U});
  EXPECT_EQ(written(), (WrittenRanges{std::nullopt, 0x1234U, 7U}));
  EXPECT_EQ((*read_record(folder()))->job, kJob);
  EXPECT_EQ(publication(), std::nullopt);
}

TEST_F(RecordFile, HoldsLinesBackUntilTheyDescribeEnoughBytes) {
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

TEST_F(RecordFile, NeverClaimsMoreWhenItIsCut) {
  const std::string whole = publish(example());
  const WrittenRanges all{std::nullopt, 0x1234U, std::nullopt};
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    const auto claimed = written();
    ASSERT_TRUE(!claimed || *claimed == WrittenRanges(3) || *claimed == all) << size;
    ASSERT_EQ(publication(), std::nullopt) << size;
  }
}

TEST_F(RecordFile, NeverClaimsAnythingElseWhenAByteIsChanged) {
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
  const PublishedModel model{"a.onnx", {1, 2}, {"a.manifest.json", 1, 2}, std::nullopt, {}};
  PublishedModel climbs = model;
  climbs.name = "../a.onnx";
  PublishedModel upper = model;
  upper.name = "A.onnx";
  PublishedModel bare = model;
  bare.name = "a";
  std::vector<Publication> forgeries{{Overwrite::kAllow, {}, {}, {}},
                                     {Overwrite::kAllow, {}, {}, {climbs}},
                                     {Overwrite::kAllow, {}, {}, {model, upper}},
                                     {Overwrite::kAllow, {}, {}, {model, bare}}};
  for (const char* bad : {"../x", "x/../y", "/x", "x/", "", ".", "..", "a/b/c", "x/.."}) {
    PublishedModel elsewhere = model;
    elsewhere.manifest.location = bad;
    PublishedModel removes = model;
    removes.old_data = {{{"x", 1, 2}, {{bad, 1, 2}}}};
    forgeries.push_back({Overwrite::kAllow, {bad}, {}, {model}});
    forgeries.push_back({Overwrite::kAllow, {}, {{bad, 1, 2}}, {model}});
    forgeries.push_back({Overwrite::kAllow, {}, {}, {elsewhere}});
    forgeries.push_back({Overwrite::kAllow, {}, {}, {removes}});
  }
  (void)publish({Overwrite::kAllow, {"x"}, {{"x/y", 1, 2}}, {model}});
  EXPECT_TRUE(publication());
  for (const Publication& forged : forgeries) {
    (void)publish(forged);
    EXPECT_EQ(publication(), std::nullopt);
  }
}

TEST_F(RecordFile, OfAnotherVersionIsRefused) {
  write("{\"record\": 1, \"check\": \"faea81b5\"}\n");
  EXPECT_THAT(read_record(folder()), FailsWith(ErrorCode::kUnsupported, "version (record 1)"));
}

}  // namespace
}  // namespace onnx_external
