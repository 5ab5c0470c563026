#include "base/foreign_format.h"

#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace onnx_external {
namespace {

using namespace std::string_literals;

struct Row {
  std::string name;
  std::string head;
  std::string what;    // must be in the text
  std::string advice;  // likewise
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

class ForeignFormats : public testing::TestWithParam<Row> {};

TEST_P(ForeignFormats, EachIsNamedWithWhatToDo) {
  const auto found = foreign_format(GetParam().head + std::string(64, '\x91'));
  ASSERT_TRUE(found);
  EXPECT_NE(found->text().find(GetParam().what), std::string::npos) << found->text();
  EXPECT_NE(found->text().find(GetParam().advice), std::string::npos) << found->text();
}

INSTANTIATE_TEST_SUITE_P(
    WithBytesBehind, ForeignFormats,
    testing::Values(
        Row{"gzip", "\x1f\x8b\x08"s, "gzip", "gzip -d"}, Row{"xz", "\xfd\x37zXZ\0"s, "xz", "xz -d"},
        Row{"zstd", "\x28\xb5\x2f\xfd"s, "zstd", "zstd -d"},
        Row{"sevenzip", "7z\xbc\xaf\x27\x1c"s, "7z", "7z x"},
        Row{"lfs", "version https://git-lfs.github.com/spec/v1\n"s, "Git LFS", "git lfs pull"},
        Row{"xet", "# xet version 0\n"s, "Xet", "hf download"},
        Row{"dvc", "outs:\n- md5: 0\n"s, "DVC", "dvc pull"},
        Row{"gguf", "GGUF\x03\0\0\0"s, "GGUF", "after the graph"},
        Row{"npy", "\x93NUMPY\x01\0"s, "numpy", "save_file"},
        Row{"hdf5", "\x89HDF\r\n\x1a\n"s, "HDF5", "the PyTorch weights"},
        Row{"ort", "\x1c\0\0\0ORTM"s, "ONNX Runtime's own format", "made from"},
        Row{"tflite", "\x1c\0\0\0TFL3"s, "TensorFlow Lite", "made from"},
        Row{"ptl", "\x1c\0\0\0PTMF"s, "mobile module", "made from"},
        Row{"tensorrt", "ftrt\x01\0"s, "TensorRT", "made from"},
        Row{"flax", "\x81\xa6params\x82"s, "Flax", "safetensors"},
        Row{"ctranslate2", "\x06\0\0\0\x10\0TransformerSpec\0"s, "CTranslate2", "converted from"}),
    [](const auto& row) { return row.param.name; });

TEST(ForeignFormat, AServersAnswerIsReportedWithItsText) {
  const auto what = [](const std::string& text) {
    const auto found = foreign_format(text);
    return found ? found->what : "";
  };
  EXPECT_EQ(what("<!DOCTYPE html><html>"), "a web page");
  EXPECT_EQ(what("\n <HTML lang=en>"), "a web page");
  EXPECT_EQ(what("<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>"),
            "a server's error message (XML)");
  EXPECT_EQ(what("<?xml version='1.0'?><net name='m' version='11'>"), "an OpenVINO graph (.xml)");
  EXPECT_EQ(what("Entry not found"),
            "text that begins with 'Entry not found', perhaps an error message from a server");
  EXPECT_EQ(what("Invalid username or password.\nsecond line"),
            "text that begins with 'Invalid username or password.', perhaps an error message from "
            "a server");
  EXPECT_EQ(what(" \n\n "), "blanks");
}

TEST(ForeignFormat, TextIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "\u00e9";
  }
  for (std::size_t bytes = 300; bytes < 304; ++bytes) {
    const auto found = foreign_format(text.substr(0, bytes));
    ASSERT_TRUE(found) << bytes;
    EXPECT_NE(found->what.find("begins with '\u00e9"), std::string::npos);
    EXPECT_EQ(found->what.find("\\x"), std::string::npos);
  }
}

TEST(ForeignFormat, FormatsThatAreReadElsewhereAreNotForeign) {
  for (const std::string& head :
       {"PK\x03\x04"s, "\x80\x02}q\0"s, "{\"a\": 1}"s, "[1]"s, "\x08\x08\x12\x07pytorch"s,
        "\x08\x07\x12\x04TFL3\x1a"s, "\x08\x07\x12\x04ORTM\x1a"s, std::string(512, '\0'), ""s}) {
    EXPECT_FALSE(foreign_format(head)) << head;
  }
}

TEST(ForeignFormat, OnnxBeginsWithItsVersionAndAnotherField) {
  EXPECT_TRUE(begins_like_onnx("\x08\x08\x12\x07pytorch"));
  EXPECT_TRUE(begins_like_onnx("\x08\x0a:\x10"));
  EXPECT_FALSE(begins_like_onnx("\x08\x08\x12"s.substr(0, 2)));
  EXPECT_FALSE(begins_like_onnx("\x08\0\0\0"s));
}

TEST(ForeignFormat, AMessageOfAServerHasItsErrorFirst) {
  EXPECT_TRUE(is_error_document(R"({"error":"Repository not found"})"));
  EXPECT_TRUE(is_error_document("\n{ \"message\" : \"Not Found\"}"));
  EXPECT_FALSE(is_error_document(R"({"model_type":"llama","error":1})"));
  EXPECT_FALSE(is_error_document("[]"));
}

TEST(ForeignData, IsAPointerOrAPageInThePlaceOfTensors) {
  const std::vector<std::pair<std::string, std::string>> heads = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00", "git lfs pull"},
      {"# xet version 0\nfilesize = 10\n", "hf download"},
      {"outs:\n- md5: 00\n  path: a\n", "dvc pull"},
      {"md5: 00\nouts:\n- md5: 00\n", "dvc pull"},
      {"<!DOCTYPE html><html>", "a web page; download it again"},
      {"\xef\xbb\xbf\n<html>", "a web page; download it again"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "server's error message"},
      {"{\"error\": \"Not found\"}", "server's error message"},
      {"\x93NUMPY\1", "belongs to the model"},
  };
  for (const auto& [head, words] : heads) {
    const auto found = foreign_data(head);
    ASSERT_TRUE(found) << head;
    EXPECT_NE(found->find(words), std::string::npos) << *found;
  }
}

TEST(ForeignData, IsNotACheckpointToWhichAModelMayLink) {
  EXPECT_EQ(foreign_data("GGUF\3\0\0\0"), std::nullopt);
}

TEST(ForeignData, IsNotWhatTensorsMayHoldByChance) {
  for (const std::string& head :
       {"\x1f\x8b\x08\0\0\0"s, "\x5d\0\0\x3f"s, "Not found"s, "0123456789abcdef"s, ""s,
        "<html>\0\0\x80\x3f"s, "{}"s, std::string(64, '\0')}) {
    EXPECT_EQ(foreign_data(head), std::nullopt) << head;
  }
}

}  // namespace
}  // namespace onnx_external
