// What verify_model finds in pieces of models, and what saves leave of their data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "onnx_external/cut.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

namespace fs = std::filesystem;

const fs::path kTiny = fs::path(ONNX_EXTERNAL_FIXTURES) / "tiny";

class VerifyPiece : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(save(), IsOk());
    CutOptions options;
    options.module = "ln_f";
    ASSERT_THAT(cut_model_file(folder() / "model.onnx", piece(), options), IsOk());
  }

  Result<SaveReport> save() {
    SaveOptions options;
    options.write.overwrite = Overwrite::kAllow;
    const std::vector<fs::path> checkpoint{kTiny / "checkpoint.pt"};
    return save_graph_with_external_data(folder(), "model.onnx", "initializers", checkpoint,
                                         kTiny / "graph.onnx", options);
  }

  fs::path folder() const { return dir_.path(); }
  fs::path piece() const { return folder() / "piece.onnx"; }

  std::vector<std::string> found() const {
    const auto report = verify_model(piece());
    EXPECT_THAT(report, IsOk());
    return report ? codes(*report) : std::vector<std::string>();
  }

  // Changes the first byte of a file.
  void flip(const std::string& name) const {
    std::fstream file(folder() / name, std::ios::in | std::ios::out | std::ios::binary);
    const int byte = file.get();
    file.seekp(0);
    file.put(static_cast<char>(byte ^ 0xFF));
  }

  TempDir dir_;
};

TEST_F(VerifyPiece, IsCheckedByTheManifestOfItsParent) {
  const auto report = verify_model(piece());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_TRUE(report->used_manifest);
  EXPECT_EQ(report->tensors, 2);
  flip("initializers/transformer.ln_f.bias");
  EXPECT_THAT(found(), ElementsAre("crc-differs transformer.ln_f.bias"));
}

TEST_F(VerifyPiece, IsAlsoCheckedWithoutAManifest) {
  fs::remove(folder() / "initializers/manifest.json");
  const auto report = verify_model(piece());
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(codes(*report), IsEmpty());
  EXPECT_FALSE(report->used_manifest);
  fs::resize_file(folder() / "initializers/transformer.ln_f.bias", 1);
  EXPECT_THAT(found(), ElementsAre("out-of-range transformer.ln_f.bias"));
}

TEST_F(VerifyPiece, ReportsAReplacedOrMissingParent) {
  flip("model.onnx");
  EXPECT_THAT(found(), ElementsAre("parent-replaced"));
  flip("model.onnx");
  EXPECT_THAT(found(), IsEmpty());
  fs::remove(folder() / "model.onnx");
  EXPECT_THAT(found(), ElementsAre("parent-replaced"));
}

TEST_F(VerifyPiece, KeepsTheDataThatItNeedsWhenItsParentIsSavedAgain) {
  const auto report = save();
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->data_left_for,
              ElementsAre(testing::Pair("initializers/transformer.ln_f.bias", "piece.onnx"),
                          testing::Pair("initializers/transformer.ln_f.weight", "piece.onnx")));
  EXPECT_THAT(found(), ElementsAre("parent-replaced"));
  EXPECT_FALSE(fs::exists(folder() / "initializers/transformer.wte.weight"));
}

TEST_F(VerifyPiece, ThatIsSavedElsewhereIsAModelOfItsOwn) {
  const SaveTarget target{.folder = folder() / "other"};
  const auto report = relayout_model(target, piece());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->verified);
  const auto verified = verify_model(folder() / "other/model.onnx");
  ASSERT_THAT(verified, IsOk());
  EXPECT_THAT(codes(*verified), IsEmpty());
  EXPECT_TRUE(verified->used_manifest);
}

TEST_F(VerifyPiece, WithADamagedNoteIsReported) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(read_text(piece())));
  model.mutable_metadata_props(0)->set_value("{}");
  dir_.write("piece.onnx", model.SerializeAsString());
  EXPECT_THAT(found(), testing::Contains("manifest"));
}

}  // namespace
}  // namespace onnx_external
