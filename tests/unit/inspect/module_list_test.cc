#include "inspect/module_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/graph_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

void node(GraphBuilder& builder, const std::string& name, const std::vector<std::string>& inputs,
          const std::string& output) {
  builder.node("Sum", inputs, {output});
  onnx::GraphProto& graph = *builder.model().mutable_graph();
  graph.mutable_node(graph.node_size() - 1)->set_name(name);
}

std::vector<std::string> lines_of(const onnx::ModelProto& proto) {
  const auto model = Model::from_proto(proto, "");
  const auto list = model ? count_modules(*model) : fail(model.error());
  std::vector<std::string> lines;
  EXPECT_THAT(list, IsOk());
  for (std::size_t i = 0; list && i < list->modules.size(); ++i) {
    const ModuleFacts& facts = list->modules[i];
    lines.push_back(facts.name + " " + std::to_string(facts.nodes) + " " +
                    std::to_string(facts.parameters) + " " + std::to_string(facts.bytes));
  }
  if (list) {
    lines.push_back(std::to_string(list->all.nodes) + " " + std::to_string(list->all.parameters) +
                    " " + std::to_string(list->all.bytes) + " " + std::to_string(list->unassigned));
  }
  return lines;
}

TEST(ModuleList, CountsNodesAndWeightsOfEachModule) {
  GraphBuilder b;
  b.input("x", kFloat, {2});
  b.external("w0", kFloat, {2}, {{"location", "data"}})
      .external("w1", kFloat, {2}, {{"location", "data"}});
  b.initializer("shared", onnx::TensorProto::DOUBLE, {2}, std::string(16, '\0'));
  node(b, "/layers.0/fc/Sum", {"x", "w0", "shared"}, "a");
  node(b, "/layers.0/Sum", {"a", "shared"}, "b");
  node(b, "/layers.10/Sum", {"b", "w1", "shared", "shared"}, "c");
  node(b, "/layers.2/Sum", {"c"}, "d");
  node(b, "Plain", {"d"}, "y");
  EXPECT_THAT(lines_of(b.model()),
              ElementsAre("layers 4 6 32", "layers.0 2 4 24", "layers.0.fc 1 4 24",
                          "layers.2 1 0 0", "layers.10 1 4 24", "5 6 32 1"));
}

TEST(ModuleList, CountsNoConstantsOfTheExporterAsParameters) {
  GraphBuilder b;
  b.input("x", kFloat, {2});
  b.initializer("val_1", onnx::TensorProto::INT64, {3}, std::string(24, '\0'));
  b.initializer("val_2", kFloat, {1}, std::string(4, '\0'));
  b.initializer("steps", onnx::TensorProto::INT64, {1}, std::string(8, '\0'));
  b.initializer("onnx::MatMul_8", kFloat, {2, 2}, std::string(16, '\0'));
  node(b, "/fc/Sum", {"x", "val_1", "val_2", "steps", "onnx::MatMul_8"}, "y");
  EXPECT_THAT(lines_of(b.model()), ElementsAre("fc 1 5 52", "1 5 52 0"));
}

TEST(ModuleList, IsEmptyIfNoNodeRecordsItsModule) {
  GraphBuilder b;
  b.input("x", kFloat, {2});
  node(b, "Plain", {"x"}, "y");
  EXPECT_THAT(lines_of(b.model()), ElementsAre("1 0 0 1"));
}

}  // namespace
}  // namespace onnx_external
