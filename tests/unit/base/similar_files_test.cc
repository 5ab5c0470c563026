#include "base/similar_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/directory.h"
#include "base/safe_path.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_for(const std::string& wanted, const std::vector<std::string>& there) {
  const TempDir dir;
  for (const std::string& name : there) {
    dir.write(name, "x");
  }
  return similar_files_text(Directory::open(dir.path())->fd(), wanted);
}

TEST(SimilarFiles, NameTheSameFileInAnotherSpelling) {
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {"model.onnx.data", "model.onnx_data"},
      {"Model.onnx.data", "model.onnx.data"},
      {"my model.data", "my%20model.data"},
      {"my-model.data", "my_model.data"},
      {"mod\xc3\xa8le.data", "mode\xcc\x80le.data"},
      {"mode\xcc\x80le.data", "mod\xc3\xa8le.data"},
      {"\xc5\xbb\xc3\xb3\xc5\x82w.data", "Z\xcc\x87o\xcc\x81\xc5\x82w.data"},
  };
  for (const auto& [wanted, there] : spellings) {
    EXPECT_EQ(text_for(wanted, {there, "model.onnx", "other.data"}),
              "; the folder contains '" + there + "': rename it to '" + wanted + "'");
  }
}

TEST(SimilarFiles, NameWhatWasRenamedWithItsModel) {
  EXPECT_THAT(text_for("model.onnx.data", {"decoder.onnx.data", "decoder.onnx", "config.json"}),
              HasSubstr("the folder contains 'decoder.onnx.data'; if it is this file, rename it"));
  EXPECT_THAT(text_for("weights.bin", {"decoder.onnx.data", "decoder.onnx"}),
              HasSubstr("the folder contains 'decoder.onnx.data'"));
}

TEST(SimilarFiles, SayThatADownloadWasNotCompleted) {
  for (const char* end : {".incomplete", ".crdownload", ".part"}) {
    EXPECT_THAT(text_for("model.onnx.data", {std::string("model.onnx.data") + end}),
                AllOf(HasSubstr(end), HasSubstr("incomplete download")));
  }
}

TEST(SimilarFiles, AreNotModelsOtherFilesAndTheFilesOfOtherTensors) {
  EXPECT_EQ(text_for("model.onnx.data", {"model.onnx", "config.json", "README.md"}), "");
  EXPECT_EQ(text_for("ln_1.bias", {"ln_1.weight", "ln_2.bias", "model.onnx.data"}), "");
}

TEST(OpenDataFile, NamesTheFileThatIsThere) {
  const TempDir dir;
  dir.write("model.onnx_data", "x");
  dir.write("sub/A.data", "x");
  const auto folder = Directory::open(dir.path());
  EXPECT_THAT(open_data_file(*folder, "model.onnx.data"),
              FailsWith(ErrorCode::kNotFound, "the folder contains 'model.onnx_data'"));
  EXPECT_THAT(open_data_file(*folder, "sub/a.data"),
              FailsWith(ErrorCode::kNotFound, "the folder contains 'A.data'"));
  EXPECT_THAT(open_data_file(*folder, "gone/model.onnx_data"),
              FailsWith(ErrorCode::kNotFound, "is next to the model"));
  std::filesystem::create_symlink("../blobs/none", dir.path() / "model.onnx.data");
  EXPECT_THAT(open_data_file(*folder, "model.onnx.data"),
              FailsWith(ErrorCode::kInvalidArgument, "the link is broken"));
  EXPECT_THAT(open_data_file(*folder, "model.onnx.data"),
              FailsWith(ErrorCode::kInvalidArgument, "the folder contains 'model.onnx_data'"));
}

}  // namespace
}  // namespace onnx_external
