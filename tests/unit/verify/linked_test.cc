// Verification of models that refer to a checkpoint's own bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Linked : public testing::Test {
 protected:
  // "view" is a part of a record, so the checkpoint records no CRC of it.
  std::vector<TestTensor> tensors_ = {
      {.name = "a", .shape = {1000}, .bytes = noise(4000, 1)},
      {.name = "b", .shape = {500}, .bytes = noise(2000, 2)},
      {.name = "view", .shape = {100}, .offset = 50, .shares = "a"},
  };
  void SetUp() override {
    checkpoint_file_ = dir_.write("c.pt", torch_zip(tensors_));
    Model model = model_for(tensors_);
    WriteOptions write;
    write.sync = Sync::kNone;
    ASSERT_THAT(
        save_all(open_one(checkpoint_file_), model, dir_.path(), write, {.layout = Layout::kLink}),
        IsOk());
  }
  Result<VerifyReport> verify_against(const Checkpoint& checkpoint,
                                      const VerifyOptions& options = {}) const {
    std::vector<ExpectedTensor> expected;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      expected.push_back({tensors_[i].name, 0, i});
    }
    return verify_model_against(dir_.path() / "model.onnx", checkpoint, expected, options);
  }
  // Another bit in the file, whose size and time of modification stay.
  void damage(const std::string& tensor_bytes) const {
    std::string bytes = read_text(checkpoint_file_);
    bytes[bytes.find(tensor_bytes) + 300] ^= 1;
    const auto time = fs::last_write_time(checkpoint_file_);
    (void)dir_.write("c.pt", bytes);
    fs::last_write_time(checkpoint_file_, time);
  }

  TempDir dir_;
  fs::path checkpoint_file_;
};

TEST_F(Linked, SaysWhatTheManifestAloneProves) {
  const auto report = verify_model(dir_.path() / "model.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_TRUE(report->used_manifest);
  EXPECT_EQ(report->tensors, 3U);
  EXPECT_EQ(report->linked, 3U);
  EXPECT_EQ(report->linked_without_crc, 1U);
}

TEST_F(Linked, FindsDamageByTheCrcsThatTheCheckpointRecorded) {
  damage(tensors_[1].bytes);
  const auto report = verify_model(dir_.path() / "model.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("crc-differs b"));
}

TEST_F(Linked, FindsAnotherFileUnderTheName) {
  (void)dir_.write("c.pt", torch_zip({tensors_[0],
                                      tensors_[1],
                                      tensors_[2],
                                      {.name = "more", .shape = {1}, .bytes = noise(4, 4)}}));
  const auto report = verify_model(dir_.path() / "model.onnx");
  ASSERT_THAT(report, IsOk());
  ASSERT_FALSE(report->ok());
  const Finding& last = report->findings.back();
  EXPECT_EQ(last.code, FindingCode::kWrongLength);
  EXPECT_EQ(last.file, "c.pt");
  EXPECT_THAT(last.message, HasSubstr("the model was linked to a file with"));
}

TEST_F(Linked, FindsAMissingFile) {
  fs::remove(checkpoint_file_);
  const auto report = verify_model(dir_.path() / "model.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), ElementsAre("missing-file a", "missing-file b", "missing-file view"));
}

TEST_F(Linked, KnowsTheCheckpointsOwnRanges) {
  const auto report = verify_against(open_one(checkpoint_file_));
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_EQ(report->compared, 3U);
  EXPECT_EQ(report->linked, 3U);
  EXPECT_EQ(report->linked_without_crc, 1U);
}

TEST_F(Linked, ComparesWithAnotherCopyOfTheCheckpoint) {
  const Checkpoint copy = open_one(dir_.write("copy/c.pt", read_text(checkpoint_file_)));
  const auto report = verify_against(copy);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->linked, 0U);
  damage(tensors_[0].bytes);
  const auto damaged = verify_against(copy);
  ASSERT_THAT(damaged, IsOk());
  EXPECT_THAT(codes(*damaged), ElementsAre("bytes-differ a", "crc-differs a", "bytes-differ view"));
}

// Comparing the bytes with themselves would find nothing.
TEST_F(Linked, FindsThatTheCheckpointItselfIsDamaged) {
  damage(tensors_[1].bytes);
  EXPECT_THAT(verify_against(open_one(checkpoint_file_)),
              FailsWith(ErrorCode::kCorrupt, "is damaged (CRC-32 differs)"));
}

TEST_F(Linked, ReadsNothingWhenPlacesAreAllThatIsAsked) {
  damage(tensors_[1].bytes);
  const Checkpoint checkpoint = open_one(checkpoint_file_);
  VerifyOptions options;
  options.compare = Compare::kPlaces;
  const auto report = verify_against(checkpoint, options);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->linked, 3U);
}

TEST_F(Linked, RefusesPlacesThatAreNotTheCheckpoints) {
  VerifyOptions options;
  options.compare = Compare::kPlaces;
  const Checkpoint copy = open_one(dir_.write("copy/c.pt", read_text(checkpoint_file_)));
  const auto other_file = verify_against(copy, options);
  ASSERT_THAT(other_file, IsOk());
  EXPECT_THAT(codes(*other_file),
              ElementsAre("bytes-differ a", "bytes-differ b", "bytes-differ view"));

  const Checkpoint checkpoint = open_one(checkpoint_file_);
  const std::vector<ExpectedTensor> swapped{{"view", 0, 2}, {"b", 0, 1}, {"a", 0, 0}};
  const ModelToVerify model{dir_.path() / "model.onnx", swapped, "", dir_.path() / "copy"};
  const auto other_folder = verify_models({&model, 1}, &checkpoint, options);
  ASSERT_THAT(other_folder, IsOk());
  EXPECT_EQ(other_folder->front().findings.size(), 3U);
}

TEST_F(Linked, PrefersTheManifestThatKnowsTheModel) {
  Manifest other;
  other.model_file = "model.onnx";
  other.model_bytes = 1;
  (void)dir_.write("model.7.manifest.json", manifest_text(other));
  (void)dir_.write("manifest.json", manifest_text(other));
  const auto report = verify_model(dir_.path() / "model.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_EQ(report->linked, 3U);
}

}  // namespace
}  // namespace onnx_external
