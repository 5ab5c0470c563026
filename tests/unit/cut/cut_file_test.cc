#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/directory.h"
#include "cut/parent_note.h"
#include "onnx/graph_facts.h"
#include "onnx/model_edits.h"
#include "onnx_external/cut.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"
#include "unit/cut/cut_support.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

const std::string kLargeInline(4096, '\7');  // large enough to stay in the file when it is loaded

std::string model_text() {
  GraphBuilder b;
  b.input("x", kFloat, {1024})
      .external("w", kFloat, {2}, {{"location", "model.data"}, {"offset", "0"}, {"length", "8"}})
      .initializer("inside", kFloat, {1024}, kLargeInline)
      .node("Mul", {"x", "inside"}, {"a"})
      .node("Mul", {"a", "w"}, {"b"})
      .node("Neg", {"b"}, {"y"})
      .value_info("a", kFloat, {1024})
      .value_info("b", kFloat, {1024})
      .output("y", kFloat, {1024});
  return b.bytes();
}

class CutFile : public testing::Test {
 protected:
  CutFile() : model_(dir_.write("model.onnx", model_text())) {
    dir_.write("model.data", "12345678");
    options_.inputs = {"x"};
    options_.outputs = {"b"};
  }

  Result<CutReport> cut_to(const std::string& name, Overwrite overwrite = Overwrite::kRefuse) {
    return cut_model_file(model_, dir_.path() / name, options_, {overwrite, Sync::kNone});
  }

  std::vector<std::string> entries() const {
    return Directory::open(dir_.path()).value().entries().value();
  }

  TempDir dir_;
  std::filesystem::path model_;
  CutOptions options_;
};

TEST_F(CutFile, StandsBesideItsModelAndRefersToTheSameData) {
  const auto report = cut_to("piece.onnx");
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(entries(), ElementsAre("model.data", "model.onnx", "piece.onnx"));
  EXPECT_EQ(report->model_bytes, std::filesystem::file_size(dir_.path() / "piece.onnx"));
  EXPECT_THAT(report->data_files, ElementsAre("model.data"));
  const auto piece = Model::load(dir_.path() / "piece.onnx");
  ASSERT_THAT(piece, IsOk());
  ASSERT_EQ(piece->external_tensors().size(), 1);
  EXPECT_EQ(piece->external_tensors()[0].location, "model.data");
}

TEST_F(CutFile, CarriesDataThatIsInTheModel) {
  ASSERT_THAT(cut_to("piece.onnx"), IsOk());
  onnx::ModelProto piece;
  ASSERT_TRUE(piece.ParseFromString(read_text(dir_.path() / "piece.onnx")));
  EXPECT_EQ(piece.graph().initializer(1).raw_data(), kLargeInline);
}

TEST_F(CutFile, IsTheModelInMemoryWithANoteOfItsParent) {
  ASSERT_THAT(cut_to("piece.onnx"), IsOk());
  const auto in_memory = cut_model(Model::load(model_).value(), options_);
  ASSERT_THAT(in_memory, IsOk());
  onnx::ModelProto piece;
  ASSERT_TRUE(piece.ParseFromString(read_text(dir_.path() / "piece.onnx")));
  const auto note = read_parent_note(piece);
  ASSERT_THAT(note, IsOk());
  ASSERT_TRUE(note->has_value());
  EXPECT_EQ((*note)->file, "model.onnx");
  EXPECT_EQ((*note)->model, (ModelIdentity{model_text().size(), crc32_of(model_text())}));
  piece.clear_metadata_props();
  EXPECT_EQ(piece.SerializeAsString(), in_memory->model);
}

TEST_F(CutFile, OfAPieceNamesThatPieceAlone) {
  ASSERT_THAT(cut_to("piece.onnx"), IsOk());
  options_ = {"", {"a"}, {"b"}, {}};
  ASSERT_THAT(cut_model_file(dir_.path() / "piece.onnx", dir_.path() / "small.onnx", options_),
              IsOk());
  onnx::ModelProto piece;
  ASSERT_TRUE(piece.ParseFromString(read_text(dir_.path() / "small.onnx")));
  ASSERT_EQ(piece.metadata_props_size(), 1);
  EXPECT_EQ((*read_parent_note(piece))->file, "piece.onnx");
}

TEST_F(CutFile, ReplacesAnOlderPieceIfThatIsAllowed) {
  ASSERT_THAT(cut_to("piece.onnx"), IsOk());
  options_.inputs = {"a"};
  EXPECT_THAT(cut_to("piece.onnx"), FailsWith(ErrorCode::kAlreadyExists, "--overwrite"));
  ASSERT_THAT(cut_to("piece.onnx", Overwrite::kAllow), IsOk());
  EXPECT_EQ(Model::load(dir_.path() / "piece.onnx")->facts().graph_inputs,
            std::vector<std::string>{"a"});
  EXPECT_THAT(entries(), ElementsAre("model.data", "model.onnx", "piece.onnx"));
}

TEST_F(CutFile, ReplacesNothingElse) {
  dir_.write("other.onnx", model_text());
  dir_.write("text.onnx", "text");
  std::filesystem::create_symlink("model.onnx", dir_.path() / "link.onnx");
  for (const char* name : {"other.onnx", "text.onnx"}) {
    EXPECT_THAT(cut_to(name, Overwrite::kAllow),
                FailsWith(ErrorCode::kAlreadyExists, "not a piece"));
  }
  for (const char* name : {"model.onnx", "link.onnx"}) {
    EXPECT_THAT(cut_to(name, Overwrite::kAllow),
                FailsWith(ErrorCode::kInvalidArgument, "would overwrite the model itself"));
  }
  EXPECT_EQ(read_text(model_), model_text());
}

TEST_F(CutFile, MustBeInTheFolderOfItsModel) {
  const auto elsewhere = dir_.path() / "folder";
  std::filesystem::create_directory(elsewhere);
  const auto refused = cut_model_file(model_, elsewhere / "piece.onnx", options_);
  EXPECT_THAT(refused, FailsWith(ErrorCode::kInvalidArgument, "in the folder of its model"));
  EXPECT_THAT(refused,
              FailsWith(ErrorCode::kInvalidArgument, (dir_.path() / "piece.onnx").string()));
  EXPECT_THAT(cut_model_file(model_, dir_.path() / "folder/../piece.onnx", options_), IsOk());
}

TEST_F(CutFile, MustHaveTheSuffixThatSavesExpect) {
  EXPECT_THAT(cut_to("piece"), FailsWith(ErrorCode::kInvalidArgument, ".onnx"));
  EXPECT_THAT(cut_to("#piece.onnx"),
              FailsWith(ErrorCode::kInvalidArgument, "not a valid file name"));
  EXPECT_THAT(cut_to(".save-external.0123456789abcdef.tmp"),
              FailsWith(ErrorCode::kInvalidArgument, "not a valid file name"));
}

TEST_F(CutFile, LeavesNothingBehindWhenItIsRefused) {
  options_.outputs = {"missing"};
  EXPECT_THAT(cut_to("piece.onnx"), FailsWith(ErrorCode::kNotFound, "model.onnx: "));
  EXPECT_THAT(entries(), ElementsAre("model.data", "model.onnx"));
}

TEST_F(CutFile, WaitsForNoSaveInTheFolder) {
  const auto folder = Directory::open(dir_.path());
  ASSERT_EQ(folder->try_lock(), true);
  EXPECT_THAT(cut_to("piece.onnx"), FailsWith(ErrorCode::kIo, "a save is writing"));
}

TEST_F(CutFile, NeedsNoData) {
  std::filesystem::remove(dir_.path() / "model.data");
  EXPECT_THAT(cut_to("piece.onnx"), IsOk());
}

TEST(ParentNote, IsReadStrictly) {
  const auto read = [](const std::string& text) {
    onnx::ModelProto model;
    auto* entry = model.add_metadata_props();
    entry->set_key(std::string(kCutFromKey));
    entry->set_value(text);
    return read_parent_note(model);
  };
  const ParentNote note{"a \"b\".onnx", {12, 0x1234}};
  EXPECT_EQ(**read(parent_note_text(note)), note);
  EXPECT_FALSE(read_parent_note(onnx::ModelProto())->has_value());
  for (const char* text :
       {"", "{}", "[]", R"({"file": "a/b.onnx", "bytes": 1, "crc32": "01234567"})",
        R"({"file": "..", "bytes": 1, "crc32": "01234567"})",
        R"({"file": "a.onnx", "bytes": -1, "crc32": "01234567"})",
        R"({"file": "a.onnx", "bytes": 1, "crc32": "0123456"})"}) {
    EXPECT_THAT(read(text), FailsWith(ErrorCode::kCorrupt, "cut_from")) << text;
  }
}

}  // namespace
}  // namespace onnx_external
