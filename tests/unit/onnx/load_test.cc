#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "onnx_external/model.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

void expect_refused(const std::string& content, const std::string& part) {
  const TempDir dir;
  EXPECT_THAT(Model::load(dir.write("model.onnx", content)), FailsWith(ErrorCode::kCorrupt, part));
}

TEST(ModelLoad, ReadsWhatItWrites) {
  GraphBuilder b;
  b.input("w", kFloat, {2}).node("Neg", {"w"}, {"y"}).output("y", kFloat, {2});
  const TempDir dir;
  const auto model = Model::load(dir.write("model.onnx", b.bytes()));
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->source_dir(), dir.path());
  EXPECT_EQ(*model->serialize(), b.bytes());
}

TEST(ModelLoad, FieldsThatItDoesNotKnowSurvive) {
  GraphBuilder b;
  b.input("w", kFloat, {2}).node("Neg", {"w"}, {"y"}).output("y", kFloat, {2});
  const std::string unknown = "\xa2\x3f\x05hello";  // field 1012, five bytes
  const TempDir dir;
  const auto model = Model::load(dir.write("model.onnx", b.bytes() + unknown));
  ASSERT_THAT(model, IsOk());
  EXPECT_NE(model->serialize()->find("hello"), std::string::npos);
}

TEST(ModelLoad, SaysThatAFileIsEmpty) {
  expect_refused("", "the file is empty");
}

TEST(ModelLoad, SaysThatAFileIsACheckpoint) {
  expect_refused("PK\x03\x04 and more",
                 "zip file, perhaps a PyTorch checkpoint; pass the graph first");
  expect_refused(std::string("\x10\0\0\0\0\0\0\0{\"a\":1}        ", 24), "safetensors checkpoint");
  expect_refused("\x80\x02}q\x01.", "Python pickle");
}

TEST(ModelLoad, SaysThatAFileIsText) {
  expect_refused("<!DOCTYPE html><html>", "web page");
  expect_refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer");
  expect_refused("ir_version: 8\ngraph {}\n", "ONNX in text form");
  expect_refused("{\"a\": 1}", "JSON");
  expect_refused("\xff\xff\xff\xff garbage", "protobuf cannot parse it");
}

TEST(ModelLoad, RefusesAModelWithoutAGraph) {
  onnx::ModelProto empty;
  empty.set_ir_version(8);
  expect_refused(empty.SerializeAsString(), "it has no graph");
}

TEST(ModelLoad, RefusesATruncatedModel) {
  GraphBuilder b;
  b.initializer("w", kFloat, {4}, std::string(16, 'x'));
  const std::string bytes = b.bytes();
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const TempDir dir;
    (void)Model::load(dir.write("m.onnx", bytes.substr(0, size)));
  }
  expect_refused(bytes.substr(0, bytes.size() - 3), "not an ONNX model");
}

TEST(ModelLoad, SaysThatThereIsNoFile) {
  EXPECT_THAT(Model::load("/nonexistent/model.onnx"),
              FailsWith(ErrorCode::kNotFound, "model.onnx"));
}

TEST(ModelLoad, RefusesDimensionsThatCannotBe) {
  GraphBuilder b;
  b.initializer("w", kFloat, {-4}, "abcd");
  EXPECT_THAT(Model::from_proto(b.model(), {}), FailsWith(ErrorCode::kCorrupt, "'w'"));
}

}  // namespace
}  // namespace onnx_external
