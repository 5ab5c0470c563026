#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/parallel.h"
#include "onnx_external/onnx_external.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace oe = onnx_external;
using Shape2 = std::vector<std::int64_t>;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// A MatMul of an input with the initializer "w", which has no data, and an Add of "b", which the
// graph only names.
onnx::ModelProto skeleton() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("g");
  const auto add_node = [&](const char* type, const char* left, const char* right,
                            const char* out) {
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(type);
    node.add_input(left);
    node.add_input(right);
    node.add_output(out);
  };
  add_node("MatMul", "x", "w", "y");
  add_node("Add", "y", "b", "z");
  graph.add_input()->set_name("x");
  graph.add_output()->set_name("z");
  onnx::TensorProto& w = *graph.add_initializer();
  w.set_name("w");
  w.set_data_type(onnx::TensorProto::FLOAT);
  w.add_dims(2);
  w.add_dims(3);
  return model;
}

TEST(StreamingWriter, FillsTheInitializersOfTheModelAndAddsThoseThatItLacks) {
  const TempDir dir;
  auto writer = oe::Writer::create(dir.path() / "out/model.onnx");
  ASSERT_TRUE(writer);
  const std::vector<float> w(6, 2), b(3, 1);
  ASSERT_TRUE(writer->add("w", DType::kFloat32, Shape2{2, 3}, bytes_of(w)));
  ASSERT_TRUE(writer->add("b", DType::kFloat32, Shape2{3}, bytes_of(b)));
  ASSERT_TRUE(writer->finish(skeleton()));

  const auto report = verify_model(dir.path() / "out/model.onnx");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok());
  const auto model = Model::load(dir.path() / "out/model.onnx");
  ASSERT_TRUE(model);
  std::vector<std::string> names;
  for (const ExternalTensor& tensor : model->external_tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names, testing::ElementsAre("w", "b"));
}

TEST(StreamingWriter, WritesTheSameFilesWhateverTheOrderOfItsThreads) {
  const TempDir dir;
  const auto write = [&](const std::string& out, bool backwards) {
    auto writer = oe::Writer::create(dir.path() / (out + "/model.onnx"));
    const std::vector<float> values(1000, 0.5);
    const Status added = parallel_for(50, 4, [&](std::size_t i, int) -> Status {
      const std::size_t index = backwards ? 49 - i : i;
      const auto proto =
          writer->add("t" + std::to_string(index), DType::kFloat32, Shape2{1000}, bytes_of(values));
      return proto ? Status() : fail(proto.error());
    });
    onnx::ModelProto model;
    model.set_ir_version(8);
    model.mutable_graph()->set_name("g");
    return added ? writer->finish(std::move(model)) : added;
  };
  ASSERT_TRUE(write("a", false));
  ASSERT_TRUE(write("b", true));
  EXPECT_EQ(read_text(dir.path() / "a/model.onnx"), read_text(dir.path() / "b/model.onnx"));
}

TEST(StreamingWriter, RefusesAnInitializerOfAnotherShapeAndLeavesNothing) {
  const TempDir dir;
  {
    auto writer = oe::Writer::create(dir.path() / "out/model.onnx");
    ASSERT_TRUE(
        writer->add("w", DType::kFloat32, Shape2{3, 2}, bytes_of(std::vector<float>(6, 2))));
    const Status status = writer->finish(skeleton());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message, testing::StartsWith("initializer 'w': "));
  }
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "out/model.onnx"));
}

TEST(StreamingWriter, TakesAModelThatFitsAfterOneThatDoesNot) {
  const TempDir dir;
  auto writer = oe::Writer::create(dir.path() / "model.onnx");
  const std::vector<float> w(6, 2), b(3, 1);
  ASSERT_TRUE(writer->add("b", DType::kFloat32, Shape2{3}, bytes_of(b)));
  EXPECT_THAT(writer->finish({}), FailsWith(ErrorCode::kCorrupt, "the model has no graph"));
  EXPECT_THAT(writer->finish(skeleton()), FailsWith(ErrorCode::kNotFound, "add() each of them"));
  ASSERT_TRUE(writer->add("w", DType::kFloat32, Shape2{2, 3}, bytes_of(w)));
  onnx::ModelProto other = skeleton();
  other.mutable_graph()->mutable_initializer(0)->set_dims(0, 7);
  other.mutable_graph()->add_initializer()->CopyFrom(other.graph().initializer(0));
  EXPECT_THAT(writer->finish(other), FailsWith(ErrorCode::kMismatch, "initializer 'w'"));
  EXPECT_TRUE(writer->finish(skeleton()));
  EXPECT_TRUE(verify_model(dir.path())->ok());
}

TEST(StreamingWriter, LeavesTheFolderToOthersOnceItHasFinished) {
  const TempDir dir;
  const std::vector<float> w(6, 2), b(3, 1);
  const auto write = [&](oe::Writer& writer) {
    (void)writer.add("w", DType::kFloat32, Shape2{2, 3}, bytes_of(w));
    (void)writer.add("b", DType::kFloat32, Shape2{3}, bytes_of(b));
    return writer.finish(skeleton());
  };
  auto first = oe::Writer::create(dir.path() / "first.onnx");
  EXPECT_THAT(oe::Writer::create(dir.path() / "second.onnx"),
              FailsWith(ErrorCode::kBusy, "another save"));
  ASSERT_TRUE(write(*first));
  auto second = oe::Writer::create(dir.path() / "second.onnx");
  ASSERT_TRUE(second) << second.error();
  EXPECT_TRUE(write(*second));
  EXPECT_THAT(first->add("w", DType::kFloat32, Shape2{2, 3}, bytes_of(w)),
              FailsWith(ErrorCode::kInvalidArgument, "open a new writer"));
  EXPECT_THAT(first->finish(skeleton()),
              FailsWith(ErrorCode::kInvalidArgument, "open a new writer"));
}

TEST(StreamingWriter, RejectsANameThatIsNotAModels) {
  const auto writer = oe::Writer::create("out/model.bin");
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kInvalidArgument);
}

TEST(Save, AttachesOrRelayoutsByOneRequest) {
  const TempDir dir;
  const std::string fixtures = ONNX_EXTERNAL_FIXTURES;
  const auto report = oe::save({.graph = fixtures + "/tiny/graph.onnx",
                                .checkpoint = {fixtures + "/tiny/checkpoint.pt"},
                                .folder = dir.path() / "out"});
  ASSERT_TRUE(report) << report.error();
  EXPECT_TRUE(report->verified);
  SaveRequest request{.graph = dir.path() / "out/model.onnx", .folder = dir.path() / "single"};
  request.options.plan.layout = Layout::kSingle;
  const auto single = oe::save(request);
  ASSERT_TRUE(single) << single.error();
  EXPECT_EQ(single->models.front().tensors.size(), report->models.front().tensors.size());
}

TEST(Save, TakesAModelInMemory) {
  const TempDir dir;
  const std::string fixtures = ONNX_EXTERNAL_FIXTURES;
  const auto graph = Model::load(fixtures + "/tiny/graph.onnx");
  for (const auto& given : {SaveRequest{.graph = *graph}, SaveRequest{.graph = &graph->proto()}}) {
    SaveRequest request = given;
    request.checkpoint = {fixtures + "/tiny/checkpoint.pt"};
    request.folder = dir.path() / std::to_string(given.graph.index());
    const auto report = oe::save(request);
    ASSERT_TRUE(report) << report.error();
    EXPECT_TRUE(verify_model(request.folder)->ok());
  }
}

TEST(Save, RefusesARequestWithoutAGraph) {
  const onnx::ModelProto* const none = nullptr;
  EXPECT_THAT(oe::save({}), FailsWith(ErrorCode::kInvalidArgument, "no graph is given"));
  EXPECT_THAT(oe::save({.graph = none}), FailsWith(ErrorCode::kInvalidArgument, "no graph"));
}

}  // namespace
}  // namespace onnx_external
