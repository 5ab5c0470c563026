// A model that lacks weights is completed or refused, or saved as what it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/function_default.h"
#include "support/graph_builder.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kFileLayouts = {Layout::kPerTensor, Layout::kSingle, Layout::kShards,
                               Layout::kInline};

// A chain of nodes of which one has its weight. What the others lack is up to the test.
void add_chain(GraphBuilder& graph) {
  graph.input("x", kFloat, {4});
  graph.initializer("held", kFloat, {4}, noise(16, 1));
  graph.node("Add", {"x", "held"}, {"y"});
}

onnx::ModelProto lacking_a_name() {
  GraphBuilder graph;
  add_chain(graph);
  graph.node("Mul", {"y", "lost.weight"}, {"z"}).output("z", kFloat, {4});
  return graph.model();
}

onnx::ModelProto lacking_data() {
  GraphBuilder graph;
  add_chain(graph);
  graph.initializer("lost.weight", kFloat, {4}, "");
  graph.node("Mul", {"y", "lost.weight"}, {"z"}).output("z", kFloat, {4});
  return graph.model();
}

// Entries that no reader looks at, because the tensor does not say that its data is external.
onnx::ModelProto lacking_a_location() {
  onnx::ModelProto model = lacking_data();
  auto* entry = model.mutable_graph()->mutable_initializer(1)->add_external_data();
  entry->set_key("location");
  entry->set_value("gone.data");
  return model;
}

onnx::ModelProto lacking_in_a_subgraph() {
  GraphBuilder graph;
  add_chain(graph);
  graph.node("If", {"x"}, {"z"}).begin_subgraph("then_branch");
  graph.node("Mul", {"y", "lost.weight"}, {"t"}).output("t", kFloat, {4}).end_subgraph();
  graph.output("z", kFloat, {4});
  return graph.model();
}

onnx::ModelProto lacking_an_output() {
  GraphBuilder graph;
  add_chain(graph);
  graph.output("lost.weight", kFloat, {4});
  return graph.model();
}

onnx::ModelProto lacking_in_a_function() {
  GraphBuilder graph;
  add_chain(graph);
  graph.output("y", kFloat, {4});
  onnx::FunctionProto& function = *graph.model().add_functions();
  function.set_domain("d");
  function.set_name("f");
  function.add_input("a");
  function.add_output("c");
  onnx::NodeProto& node = *function.add_node();
  node.set_op_type("Mul");
  node.add_input("a");
  node.add_input("lost.weight");
  node.add_input("");
  node.add_output("c");
  return graph.model();
}

onnx::ModelProto lacking_in_a_node() {
  GraphBuilder graph;
  add_chain(graph);
  graph.node("Constant", {}, {"lost.weight"}).output("lost.weight", kFloat, {4});
  auto* attribute = graph.model().mutable_graph()->mutable_node(1)->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  attribute->mutable_t()->set_data_type(kFloat);
  attribute->mutable_t()->add_dims(4);
  return graph.model();
}

onnx::ModelProto lacking_in_a_sparse_one() {
  GraphBuilder graph;
  add_chain(graph);
  graph.output("y", kFloat, {4});
  auto* sparse = graph.model().mutable_graph()->add_sparse_initializer();
  sparse->mutable_values()->set_name("lost.weight");
  sparse->mutable_values()->set_data_type(kFloat);
  sparse->mutable_values()->add_dims(2);
  sparse->mutable_indices()->set_data_type(kInt64);
  sparse->mutable_indices()->add_dims(2);
  sparse->mutable_indices()->add_int64_data(0);
  sparse->mutable_indices()->add_int64_data(1);
  sparse->add_dims(4);
  return graph.model();
}

std::vector<onnx::ModelProto> lacking_models() {
  return {lacking_a_name(),        lacking_data(),           lacking_a_location(),
          lacking_in_a_subgraph(), lacking_an_output(),      lacking_in_a_function(),
          lacking_in_a_node(),     lacking_in_a_sparse_one()};
}

class Completeness : public testing::Test {
 protected:
  Result<SaveReport> relayout(const onnx::ModelProto& model, const SaveOptions& options = {}) {
    return relayout_model(SaveTarget{dir_.path() / "out"}, model, options);
  }

  TempDir dir_;
};

TEST_F(Completeness, ModelsThatLackAWeightAreRefusedInEveryLayout) {
  for (const onnx::ModelProto& model : lacking_models()) {
    for (const Layout layout : kFileLayouts) {
      SaveOptions options;
      options.plan.layout = layout;
      EXPECT_THAT(relayout(model, options), FailsWith(ErrorCode::kNotFound, "lost.weight"));
      EXPECT_THAT(relayout(model, options), FailsWith(ErrorCode::kNotFound, "--partial"));
    }
    SaveOptions dry;
    dry.mode = RunMode::kDryRun;
    EXPECT_THAT(relayout(model, dry), FailsWith(ErrorCode::kNotFound, "lost.weight"));
    EXPECT_FALSE(std::filesystem::exists(dir_.path() / "out" / "model.onnx"));
  }
}

TEST_F(Completeness, OptionsOfACheckpointAreRefusedWithoutOne) {
  const auto refused = [&](const char* name, auto set) {
    SaveOptions options;
    set(options);
    EXPECT_THAT(relayout(lacking_data(), options),
                FailsWith(ErrorCode::kInvalidArgument,
                          std::string(name) + ": applies only to the weights"));
  };
  refused("dtype", [](SaveOptions& options) { options.plan.dtype = DType::kFloat16; });
  refused("dtype", [](SaveOptions& options) { options.mapping.casts = Casts::kAllow; });
  refused("prefix", [](SaveOptions& options) { options.mapping.prefix = ""; });
  refused("map", [](SaveOptions& options) { options.mapping.map.push_back({}); });
  refused("rename", [](SaveOptions& options) { options.mapping.renames.push_back({}); });
  refused("unmatched", [](SaveOptions& options) { options.mapping.unmatched = Unmatched::kKeep; });
  refused("keep", [](SaveOptions& options) { options.mapping.keep = {"w"}; });
  refused("ignore", [](SaveOptions& options) { options.mapping.ignore = {"w"}; });
  refused("learn_map", [](SaveOptions& options) { options.learn_from = {"w.pt"}; });
}

TEST_F(Completeness, APartialSaveSaysWhatIsMissingAndVerificationFindsThat) {
  for (const onnx::ModelProto& model : lacking_models()) {
    SaveOptions options;
    options.mapping.partial = Partial::kAllow;
    options.write.overwrite = Overwrite::kAllow;
    const auto report = relayout(model, options);
    ASSERT_THAT(report, IsOk());
    EXPECT_FALSE(report->complete);
    ASSERT_EQ(report->models[0].slots_left().size(), 1U);
    EXPECT_THAT(report->models[0].slots_left().front(), HasSubstr("lost.weight"));
    const auto found = verify_model(report->models[0].model);
    ASSERT_THAT(found, IsOk());
    EXPECT_FALSE(found->ok());
    EXPECT_FALSE(found->complete());
    ASSERT_EQ(found->findings.size(), 1U);
    EXPECT_EQ(found->findings.front().code, FindingCode::kOpenSlot);
    EXPECT_EQ(found->findings.front().tensor, report->models[0].slots_left().front());
  }
}

TEST_F(Completeness, TheRefusalListsWhatIsMissing) {
  const auto refused = relayout(lacking_a_name());
  ASSERT_THAT(refused,
              FailsListing(ErrorCode::kNotFound, ErrorKind::kWithoutData, {"lost.weight"}));
  EXPECT_THAT(refused.error().message, HasSubstr("pass the checkpoint"));
  ASSERT_EQ(refused.error().details->lists.size(), 1U);
  EXPECT_EQ(refused.error().details->lists[0].items[0].note, "used by Mul 'Mul_1'");
}

TEST_F(Completeness, OptionalInputsAndNamesOfOuterScopesAreNotMissing) {
  GraphBuilder graph;
  add_chain(graph);
  graph.node("Resize", {"y", "", ""}, {"u", ""}).node("If", {"u"}, {"z"});
  graph.begin_subgraph("then_branch").node("Add", {"held", "y"}, {"t"});
  graph.output("t", kFloat, {4}).end_subgraph().output("z", kFloat, {4});
  graph.initializer("none", kFloat, {0}, "");
  const auto report = relayout(graph.model());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete);
  EXPECT_TRUE(verify_model(report->models[0].model)->complete());
}

TEST_F(Completeness, AFunctionSeesItsInputsItsNodesAndTheGraphsAroundASubgraph) {
  onnx::ModelProto model = lacking_in_a_function();
  onnx::FunctionProto& function = *model.mutable_functions(0);
  function.mutable_node(0)->set_input(1, "a");
  onnx::NodeProto& branch = *function.add_node();
  branch.set_op_type("If");
  branch.add_input("a");
  branch.add_output("b");
  auto* attribute = branch.add_attribute();
  attribute->set_name("then_branch");
  attribute->set_type(onnx::AttributeProto::GRAPH);
  onnx::NodeProto& inner = *attribute->mutable_g()->add_node();
  inner.set_op_type("Add");
  inner.add_input("a");
  inner.add_input("c");
  inner.add_output("t");
  SaveOptions dry;
  dry.mode = RunMode::kDryRun;
  EXPECT_THAT(relayout(model, dry), IsOk());
  inner.set_input(0, "held");  // of the graph, which a function does not see
  EXPECT_THAT(relayout(model, dry), FailsWith(ErrorCode::kNotFound, "d::f.held"));
}

TEST_F(Completeness, InputsWithTheNamesOfWeightsAreWeightsUnlessTheCallerSaysOtherwise) {
  GraphBuilder graph;
  add_chain(graph);
  graph.input("fc.weight", kFloat, {4}).node("Mul", {"y", "fc.weight"}, {"z"});
  graph.output("z", kFloat, {4});
  EXPECT_THAT(relayout(graph.model()), FailsWith(ErrorCode::kNotFound, "--inputs fc.weight"));
  SaveOptions options;
  options.mapping.inputs = {"x", "fc.weight"};
  const auto report = relayout(graph.model(), options);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete);
  EXPECT_THAT(report->models[0].inputs_left(), ElementsAre("x", "fc.weight"));
}

TEST_F(Completeness, InputsThatHaveAnInitializerAreFilled) {
  GraphBuilder graph(3);  // before IR version 4 each initializer is an input, too
  add_chain(graph);
  graph.input("fc.weight", kFloat, {4}).initializer("fc.weight", kFloat, {4}, noise(16, 2));
  graph.input("held", kFloat, {4});
  graph.node("Mul", {"y", "fc.weight"}, {"z"}).output("z", kFloat, {4});
  const auto report = relayout(graph.model());
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->complete);
}

TEST_F(Completeness, ASetIsCompleteIfAllItsModelsAre) {
  const std::vector<GraphToSave> graphs{
      {"whole.onnx", Model::from_proto(lacking_an_output(), {}).value()},
      {"half.onnx", Model::from_proto(lacking_a_name(), {}).value()}};
  SaveOptions options;
  EXPECT_THAT(relayout_models({.folder = dir_.path()}, graphs, options),
              FailsListing(ErrorCode::kNotFound, ErrorKind::kWithoutData));
  options.mapping.partial = Partial::kAllow;
  const auto report = relayout_models({.folder = dir_.path()}, graphs, options);
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->complete);
  EXPECT_THAT(report->models[1].slots_left(), ElementsAre("lost.weight"));
}

TEST_F(Completeness, ACheckpointDoesNotHideWhatItCannotFill) {
  const auto file =
      dir_.write("c.pt", torch_zip({{.name = "held", .shape = {4}, .bytes = noise(16, 5)}}));
  const std::vector<std::filesystem::path> paths{file};
  for (const onnx::ModelProto& model :
       {lacking_in_a_function(), lacking_in_a_node(), lacking_in_a_sparse_one()}) {
    SaveOptions options;
    EXPECT_THAT(save_model_with_external_data(dir_.path() / "out", "model.onnx", "initializers",
                                              paths, model, options),
                FailsWith(ErrorCode::kNotFound, "a checkpoint cannot fill"));
  }
}

TEST_F(Completeness, WhatTheCallerDecidedIsReported) {
  const auto file =
      dir_.write("c.pt", torch_zip({{.name = "held", .shape = {4}, .bytes = noise(16, 5)},
                                    {.name = "more.weight", .shape = {4}, .bytes = noise(16, 6)}}));
  const std::vector<std::filesystem::path> paths{file};
  GraphBuilder graph;
  add_chain(graph);
  graph.initializer("own", kFloat, {4}, noise(16, 3));
  graph.node("Mul", {"y", "own"}, {"z"}).output("z", kFloat, {4});
  const auto save = [&](const MappingOptions& mapping) {
    SaveOptions options;
    options.mapping = mapping;
    options.mode = RunMode::kDryRun;
    return save_model_with_external_data("", "model.onnx", "initializers", paths, graph.model(),
                                         options);
  };
  MappingOptions choices;
  choices.keep = {"own"};
  choices.ignore = {"^more"};
  const auto kept = save(choices);
  ASSERT_THAT(kept, IsOk());
  EXPECT_TRUE(kept->complete);
  EXPECT_THAT(kept->models[0].kept_by_option, ElementsAre("own"));
  EXPECT_THAT(kept->keys_with({KeyVerdict::kIgnored}), ElementsAre("more.weight"));
  EXPECT_THAT(kept->skipped_keys(), IsEmpty());
  choices = {};
  choices.unmatched = Unmatched::kSkip;
  choices.partial = Partial::kAllow;
  const auto partial = save(choices);
  ASSERT_THAT(partial, IsOk());
  EXPECT_FALSE(partial->complete);
  EXPECT_THAT(partial->models[0].left_old(), ElementsAre("own"));
  EXPECT_THAT(partial->models[0].slots_left(), IsEmpty());
}

TEST_F(Completeness, AWriterRefusesAGraphThatLacksWhatWasNotAdded) {
  for (const Partial partial : {Partial::kRefuse, Partial::kAllow}) {
    WriterOptions options;
    options.partial = partial;
    auto writer = Writer::create(dir_.path() / "out/model.onnx", options);
    ASSERT_THAT(writer, IsOk());
    const std::vector<std::int64_t> shape{4};
    const std::string bytes = noise(16, 4);
    const auto proto =
        writer->add("added", DType::kFloat32, shape, std::as_bytes(std::span(bytes)));
    ASSERT_THAT(proto, IsOk());
    onnx::ModelProto model = lacking_a_name();
    *model.mutable_graph()->add_initializer() = *proto;
    const Status status = writer->finish(model);
    if (partial == Partial::kRefuse) {
      EXPECT_THAT(status, FailsWith(ErrorCode::kNotFound, "'lost.weight'"));
    } else {
      EXPECT_THAT(status, IsOk());
    }
  }
}

}  // namespace
}  // namespace onnx_external
