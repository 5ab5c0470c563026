// A save that takes its bytes from a model with a manifest: damage is not passed on.
#include "verify/recorded_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void flip(const fs::path& path, std::size_t byte) {
  std::string bytes = read_text(path);
  bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

class RecordedBytes : public testing::Test {
 protected:
  RecordedBytes() {
    checkpoint_ = dir_.write("c.pt", torch_zip(tensors_));
    graph_ = dir_.write("graph.onnx", *model_for(tensors_).serialize());
  }

  Result<SaveReport> save(const fs::path& graph, const std::string& out, Layout layout,
                          const std::vector<fs::path>& checkpoints = {},
                          std::uint64_t inline_below = 0) {
    SaveOptions options;
    options.plan.layout = layout;
    options.plan.inline_below = inline_below;
    options.mapping.partial = Partial::kAllow;
    options.write.sync = Sync::kNone;
    options.write.overwrite = Overwrite::kAllow;
    const fs::path folder = dir_.path() / out;
    return checkpoints.empty() ? relayout_model({.folder = folder}, graph, options)
                               : save_graph_with_external_data(folder, "model.onnx", "initializers",
                                                               checkpoints, graph, options);
  }
  void save_first(Layout layout) {
    ASSERT_THAT(save(graph_, "out", layout, {checkpoint_}), IsOk());
  }
  fs::path in(const std::string& path) const { return dir_.path() / path; }

  const TempDir dir_;
  std::vector<TestTensor> tensors_{
      {.name = "large", .shape = {300, 1000}, .bytes = noise(1'200'000, 1)},
      {.name = "small", .shape = {16}, .bytes = noise(64, 2)},
      {.name = "steps", .dtype = DType::kInt64, .shape = {}, .bytes = noise(8, 3)}};
  fs::path checkpoint_;
  fs::path graph_;
};

TEST_F(RecordedBytes, AreCheckedInAnyLayout) {
  for (const Layout from : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    for (const Layout to :
         {Layout::kPerTensor, Layout::kSingle, Layout::kShards, Layout::kInline}) {
      save_first(from);
      const std::string file = Model::load(in("out/model.onnx"))->external_tensors()[0].location;
      flip(in("out") / file, 777'777);
      EXPECT_THAT(save(in("out/model.onnx"), "out", to),
                  FailsWith(ErrorCode::kCorrupt, file + ": tensor 'large': its CRC-32 is "));
      flip(in("out") / file, 777'777);
      ASSERT_THAT(save(in("out/model.onnx"), "out", to), IsOk());
    }
  }
}

TEST_F(RecordedBytes, AreCheckedWhenTheyComeIntoTheModel) {
  save_first(Layout::kPerTensor);
  flip(in("out/initializers/small"), 5);
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle, {}, 1000),
              FailsWith(ErrorCode::kCorrupt, "small: tensor 'small': its CRC-32 is"));
  EXPECT_FALSE(fs::exists(in("to")));
}

TEST_F(RecordedBytes, AreCheckedWhenACheckpointReplacesTheOthers) {
  save_first(Layout::kPerTensor);
  flip(in("out/initializers/large"), 5);
  const fs::path other = dir_.write("small.pt", torch_zip({tensors_[1]}));
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle, {other}),
              FailsWith(ErrorCode::kCorrupt, "tensor 'large'"));
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle, {checkpoint_}), IsOk());
}

TEST_F(RecordedBytes, InsideAModelThatNoCheckpointFilledAreProvedByItsCrc) {
  save_first(Layout::kSingle);
  ASSERT_THAT(save(in("out/model.onnx"), "out", Layout::kInline), IsOk());
  ASSERT_THAT(save(in("out/model.onnx"), "out", Layout::kInline), IsOk());  // nothing moves
  flip(in("out/model.onnx"), read_text(in("out/model.onnx")).find(noise(100, 1)) + 50);
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle),
              FailsWith(ErrorCode::kMismatch, "was damaged or changed after it was saved"));
}

TEST_F(RecordedBytes, InsideAModelAreProvedByTheModelsOwnCrc) {
  save_first(Layout::kInline);
  const std::size_t place = read_text(in("out/model.onnx")).find(noise(100, 1)) + 50;
  flip(in("out/model.onnx"), place);
  for (const Layout to : {Layout::kSingle, Layout::kInline}) {
    EXPECT_THAT(save(in("out/model.onnx"), "to", to),
                FailsWith(ErrorCode::kMismatch, "was damaged or changed after it was saved"));
  }
  flip(in("out/model.onnx"), place);
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle), IsOk());
}

TEST_F(RecordedBytes, OfAModelThatWasChangedSinceAreRefusedUntilItsManifestGoes) {
  save_first(Layout::kPerTensor);
  std::string bytes = read_text(in("out/model.onnx"));
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(bytes));
  model.set_producer_name("another tool");
  dir_.write("out/model.onnx", model.SerializeAsString());
  const auto refused = save(in("out/model.onnx"), "to", Layout::kSingle);
  ASSERT_THAT(refused, FailsWith(ErrorCode::kMismatch, "does not match its manifest"));
  EXPECT_THAT(refused.error().message,
              HasSubstr("the manifest belongs to another model: restore the model, or remove the "
                        "manifest to use this model"));
  fs::remove(in("out/initializers/manifest.json"));
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle), IsOk());
}

TEST_F(RecordedBytes, AreAlsoCheckedForAChangedCopyOfTheModel) {
  save_first(Layout::kPerTensor);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(read_text(in("out/model.onnx"))));
  model.set_producer_name("another tool");
  const fs::path copy = dir_.write("out/copy.onnx", model.SerializeAsString());
  EXPECT_THAT(save(copy, "to", Layout::kSingle), IsOk());
  flip(in("out/initializers/large"), 5);
  EXPECT_THAT(save(copy, "to", Layout::kSingle),
              FailsWith(ErrorCode::kCorrupt, "tensor 'large': its CRC-32 is"));
}

TEST_F(RecordedBytes, OfADamagedManifestAreRefused) {
  save_first(Layout::kPerTensor);
  dir_.write("out/initializers/manifest.json", "{\"format\": ");
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle),
              FailsWith(ErrorCode::kCorrupt, "without a readable manifest"));
}

TEST_F(RecordedBytes, AreCarriedOnWhenAModelIsLinkedAgain) {
  fs::create_directory(in("out"));
  fs::copy(checkpoint_, in("out/c.pt"));
  ASSERT_THAT(save(graph_, "out", Layout::kLink, {in("out/c.pt")}), IsOk());
  const auto first = verify_model(in("out/model.onnx"));
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(first->linked_without_crc, 0U);
  ASSERT_THAT(save(in("out/model.onnx"), "out", Layout::kLink), IsOk());
  const auto again = verify_model(in("out/model.onnx"));
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->linked, 2U);
  EXPECT_EQ(again->linked_without_crc, 0U);
  const std::string zip = read_text(in("out/c.pt"));
  flip(in("out/c.pt"), zip.find(noise(1000, 1)) + 999);
  EXPECT_EQ(verify_model(in("out/model.onnx"))->findings.size(), 1U);
  EXPECT_THAT(save(in("out/model.onnx"), "to", Layout::kSingle),
              FailsWith(ErrorCode::kCorrupt, "c.pt: tensor 'large'"));
}

TEST_F(RecordedBytes, OfASavedModelAreCarriedOnWhenItIsLinkedTo) {
  save_first(Layout::kSingle);
  ASSERT_THAT(save(in("out/model.onnx"), "out", Layout::kLink), IsOk());
  const auto report = verify_model(in("out/model.onnx"));
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->linked_without_crc, 0U);
}

}  // namespace
}  // namespace onnx_external
