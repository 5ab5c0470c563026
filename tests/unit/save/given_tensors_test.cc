// Models that hold their weights already: other layouts for them, without a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "onnx/model_access.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/function_default.h"
#include "support/inline_bytes.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// place and name -> bytes of every tensor of a written model, wherever they are.
std::map<std::string, std::string> values_of(const fs::path& path) {
  const Model model = Model::load(path).value();
  const auto name_of = [](const auto& tensor) {
    return std::to_string(static_cast<int>(tensor.place)) + " " + std::to_string(tensor.graph) +
           " " + tensor.name;
  };
  std::map<std::string, std::string> values;
  for (const ExternalTensor& tensor : model.external_tensors()) {
    values[name_of(tensor)] =
        read_text(path.parent_path() / tensor.location).substr(tensor.offset, tensor.length);
  }
  for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
    values[name_of(model.inline_tensors()[i])] =
        inline_bytes(ModelAccess::inline_proto(model, i), ModelAccess::cuts(model)).value();
  }
  return values;
}

std::vector<std::string> external_names(const fs::path& path) {
  std::vector<std::string> names;
  const Model model = Model::load(path).value();
  for (const ExternalTensor& tensor : model.external_tensors()) {
    names.push_back(tensor.name);
  }
  return names;
}

constexpr std::int32_t kInt8 = onnx::TensorProto::INT8;

void set_bytes(onnx::TensorProto* tensor, const std::string& name, std::size_t floats,
               std::uint32_t seed) {
  tensor->set_name(name);
  tensor->set_data_type(kFloat);
  tensor->add_dims(static_cast<std::int64_t>(floats));
  tensor->set_raw_data(noise(4 * floats, seed));
}

onnx::TensorProto* add_value(onnx::NodeProto* node) {
  auto* attribute = node->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  return attribute->mutable_t();
}

// Tensors in every place, in raw and in typed fields, small and large.
onnx::ModelProto full_model() {
  GraphBuilder b;
  b.input("x", kFloat, {4});
  b.initializer("raw", kFloat, {300, 100}, noise(120'000, 1));
  b.initializer("small", kFloat, {2}, noise(8, 2));
  b.initializer("shape", kInt64, {2}, noise(16, 3));
  b.initializer("indices", kInt64, {20, 10}, noise(1600, 4));
  b.initializer("scales", kFloat, {4}, noise(16, 5));
  b.initializer("none", kFloat, {0}, "");
  b.node("Constant", {}, {"c"}).node("Resize", {"x", "", "scales"}, {"y"});
  b.node("If", {"x"}, {"z"}).begin_subgraph("then_branch");
  b.initializer("raw", kFloat, {500}, noise(2000, 6)).end_subgraph();
  auto* graph = b.model().mutable_graph();
  auto* typed = graph->add_initializer();
  typed->set_name("typed");
  typed->set_data_type(kInt8);
  typed->add_dims(3000);
  for (int i = 0; i < 3000; ++i) {
    typed->add_int32_data(i % 256 - 128);
  }
  auto* text = graph->add_initializer();
  text->set_name("text");
  text->set_data_type(onnx::TensorProto::STRING);
  text->add_dims(1);
  text->add_string_data(std::string(3000, 't'));
  set_bytes(add_value(graph->mutable_node(0)), "", 400, 7);
  auto* sparse = graph->add_sparse_initializer();
  set_bytes(sparse->mutable_values(), "sparse", 300, 8);
  sparse->mutable_indices()->set_data_type(kInt64);
  sparse->mutable_indices()->add_dims(300);
  for (int i = 0; i < 300; ++i) {
    sparse->mutable_indices()->add_int64_data(i * 1000);
  }
  sparse->add_dims(1'000'000);
  onnx::TensorProto fallback;
  set_bytes(&fallback, "", 700, 10);
  auto* in_function = add_function_with_default(b.model(), "fallback", fallback).add_node();
  in_function->add_output("f");
  set_bytes(add_value(in_function), "", 600, 9);
  return b.model();
}

class GivenWeights : public testing::Test {
 protected:
  Result<SaveReport> save(const fs::path& graph, const std::string& out, SaveOptions options,
                          const std::vector<fs::path>& checkpoints = {}) {
    options.write.sync = Sync::kNone;
    const fs::path folder = dir_.path() / out;
    return checkpoints.empty() ? relayout_model({.folder = folder}, graph, options)
                               : save_graph_with_external_data(folder, "model.onnx", "initializers",
                                                               checkpoints, graph, options);
  }
  fs::path given(const onnx::ModelProto& model = full_model()) {
    return dir_.write("given.onnx", model.SerializeAsString());
  }
  fs::path model_in(const std::string& out) { return dir_.path() / out / "model.onnx"; }

  const TempDir dir_;
};

SaveOptions with(Layout layout, bool attributes = false) {
  SaveOptions options;
  options.plan.layout = layout;
  options.plan.existing_data = attributes ? ExistingData::kMoveAndAttributes : ExistingData::kStay;
  return options;
}

constexpr Layout kLayouts[] = {Layout::kPerTensor, Layout::kSingle, Layout::kShards,
                               Layout::kInline};

TEST_F(GivenWeights, KeepTheirBytesInEveryLayout) {
  const auto values = values_of(given());
  for (const Layout layout : kLayouts) {
    for (const bool attributes : {false, true}) {
      const std::string out = "out" + std::to_string(static_cast<int>(layout) * 2 + attributes);
      const auto report = save(given(), out, with(layout, attributes));
      ASSERT_THAT(report, IsOk());
      EXPECT_TRUE(report->verified);
      EXPECT_EQ(values_of(model_in(out)), values);
    }
  }
}

TEST_F(GivenWeights, MoveUnlessARuntimeNeedsThemInline) {
  SaveOptions options = with(Layout::kPerTensor);
  options.plan.inline_below = 0;
  ASSERT_THAT(save(given(), "out", options), IsOk());
  EXPECT_EQ(external_names(model_in("out")),
            (std::vector<std::string>{"raw", "small", "indices", "typed", "sparse",
                                      "sparse.indices", "raw"}));
  const auto files = tree_of(dir_.path() / "out" / "initializers");
  EXPECT_EQ(files.size(), 8U);  // and the manifest
}

TEST_F(GivenWeights, OfTrainingStayWhereLoadersFindThem) {
  onnx::ModelProto model = full_model();
  auto* training = model.add_training_info();
  set_bytes(training->mutable_initialization()->add_initializer(), "step", 500, 20);
  set_bytes(training->mutable_algorithm()->add_initializer(), "momentum", 500, 21);
  set_bytes(add_value(training->mutable_algorithm()->add_node()), "", 500, 22);
  const auto values = values_of(given(model));
  ASSERT_THAT(save(given(model), "out", with(Layout::kSingle, true)), IsOk());
  EXPECT_EQ(values_of(model_in("out")), values);
  const auto written = read_text(model_in("out"));
  for (const std::uint32_t seed : {20U, 21U, 22U}) {
    EXPECT_NE(written.find(noise(2000, seed)), std::string::npos) << seed;
  }
}

// What another tool wrote: everything in one file, whatever runtimes can read from there.
onnx::ModelProto model_with_all_outside(const TempDir& files) {
  files.write("all.bin", noise(4000, 1));
  const auto at = [](int offset, int length) -> std::vector<std::pair<std::string, std::string>> {
    return {{"location", "all.bin"},
            {"offset", std::to_string(offset)},
            {"length", std::to_string(length)}};
  };
  GraphBuilder b;
  b.input("x", kFloat, {4});
  b.external("weight", kFloat, {500}, at(0, 2000));
  b.external("bias", kFloat, {4}, at(2000, 16));
  b.external("shape", kInt64, {2}, at(2016, 16));
  b.external("axis", kInt64, {}, at(2032, 8));
  b.external("indices", kInt64, {20, 10}, at(2040, 1600));
  b.external("scales", kFloat, {4}, at(3640, 16));
  b.node("Use", {"weight", "bias", "shape", "axis", "indices"}, {"z"});
  b.node("Resize", {"x", "", "scales"}, {"y"}).node("Constant", {}, {"c"});
  b.node("Resize", {"x", "", "c"}, {"w"});
  auto* value = add_value(b.model().mutable_graph()->mutable_node(2));
  value->set_data_type(kFloat);
  value->add_dims(4);
  value->set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, text] : at(3656, 16)) {
    auto* entry = value->add_external_data();
    entry->set_key(key);
    entry->set_value(text);
  }
  return b.model();
}

TEST_F(GivenWeights, ThatARuntimeNeedsInlineComeBackIntoTheModel) {
  const fs::path model = given(model_with_all_outside(dir_));
  const auto values = values_of(model);
  for (const Layout layout : kLayouts) {
    const std::string out = "out" + std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(model, out, with(layout)), IsOk());
    EXPECT_EQ(external_names(model_in(out)),
              layout == Layout::kInline ? std::vector<std::string>()
                                        : (std::vector<std::string>{"weight", "bias", "indices"}));
    EXPECT_EQ(values_of(model_in(out)), values);
  }
}

TEST_F(GivenWeights, OfAttributesMoveWhenAsked) {
  ASSERT_THAT(save(given(), "out", with(Layout::kSingle, true)), IsOk());
  EXPECT_THAT(external_names(model_in("out")),
              testing::IsSupersetOf({"c.value", "f.value", "d::f.fallback", "raw"}));
}

// As another tool wrote them: in one file, which a save must bring along.
TEST_F(GivenWeights, OfFunctionsDefaultsComeAlongFromOtherFiles) {
  dir_.write("other.bin", noise(4000, 1));
  onnx::TensorProto outside;
  set_bytes(&outside, "", 400, 1);
  outside.clear_raw_data();
  outside.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair("location", "other.bin"), std::pair("offset", "16"),
                                   std::pair("length", "1600")}) {
    auto* entry = outside.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  GraphBuilder b;
  b.input("x", kFloat, {4}).node("Use", {"x"}, {"y"}).output("y", kFloat, {4});
  (void)add_function_with_default(b.model(), "outside", outside);
  const fs::path model = given(b.model());
  const auto values = values_of(model);
  ASSERT_EQ(values.size(), 1U);
  for (const Layout layout : kLayouts) {
    const std::string out = "out" + std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(model, out, with(layout)), IsOk());
    EXPECT_EQ(values_of(model_in(out)), values);
    EXPECT_EQ(external_names(model_in(out)).empty(), layout == Layout::kInline);
    const auto verified = verify_model(model_in(out));
    ASSERT_THAT(verified, IsOk());
    EXPECT_TRUE(verified->ok() && verified->used_manifest);
    EXPECT_EQ(verified->tensors, layout == Layout::kInline ? 0U : 1U);
  }
}

// Bodies of functions see no outer names, so exporters use the same ones again.
TEST_F(GivenWeights, OfFunctionsWithTheSameNamesInsideAreToldApart) {
  onnx::ModelProto model = full_model();
  for (std::uint32_t seed = 20; seed < 23; ++seed) {
    onnx::TensorProto fallback;
    set_bytes(&fallback, "", 700, seed);
    auto* node = add_function_with_default(model, "fallback", fallback).add_node();
    node->add_output("f");
    set_bytes(add_value(node), "", 600, seed + 10);
  }
  for (const Layout layout : kLayouts) {
    const std::string out = "out" + std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(given(model), out, with(layout, true)), IsOk());
    const auto verified = verify_model(model_in(out));
    ASSERT_THAT(verified, IsOk());
    EXPECT_TRUE(verified->ok()) << finding_text(verified->findings[0]);
    SaveOptions again = with(layout, true);
    again.write.overwrite = Overwrite::kAllow;
    EXPECT_THAT(save(model_in(out), out, again), IsOk());
  }
}

TEST_F(GivenWeights, ComeBackFromEachLayoutToEach) {
  const auto values = values_of(given());
  for (const Layout from : kLayouts) {
    for (const Layout to : kLayouts) {
      SaveOptions second = with(to);
      second.write.overwrite = Overwrite::kAllow;
      const std::string out =
          std::to_string(static_cast<int>(from)) + std::to_string(static_cast<int>(to));
      ASSERT_THAT(save(given(), out, with(from, true)), IsOk());
      ASSERT_THAT(save(model_in(out), out, second), IsOk());  // over the files that it reads
      EXPECT_EQ(values_of(model_in(out)), values);
      const auto verified = verify_model(model_in(out));
      ASSERT_THAT(verified, IsOk());
      EXPECT_TRUE(verified->ok() && verified->used_manifest);
    }
  }
}

TEST_F(GivenWeights, LeaveNothingOutsideAModelThatHoldsThemAll) {
  ASSERT_THAT(save(given(), "out", with(Layout::kSingle, true)), IsOk());
  SaveOptions options = with(Layout::kInline);
  options.write.overwrite = Overwrite::kAllow;
  ASSERT_THAT(save(model_in("out"), "out", options), IsOk());
  const auto files = tree_of(dir_.path() / "out");
  EXPECT_EQ(files.size(), 2U);
  EXPECT_TRUE(files.contains("model.1.manifest.json"));
  EXPECT_TRUE(Model::load(model_in("out"))->external_tensors().empty());
}

TEST_F(GivenWeights, BelowASizeStayOrComeIntoTheModel) {
  SaveOptions options = with(Layout::kSingle);
  options.plan.inline_below = 3000;
  const std::vector<std::string> large{"raw", "typed"};
  ASSERT_THAT(save(given(), "stay", options), IsOk());
  EXPECT_EQ(external_names(model_in("stay")), large);
  ASSERT_THAT(save(given(), "all", with(Layout::kPerTensor)), IsOk());
  ASSERT_THAT(save(model_in("all"), "come", options), IsOk());
  EXPECT_EQ(external_names(model_in("come")), large);
  EXPECT_EQ(values_of(model_in("come")), values_of(given()));
  options.plan.inline_below = kMaxInlineBelow + 1;
  EXPECT_THAT(save(given(), "more", options), FailsWith(ErrorCode::kInvalidArgument, "inline"));
}

TEST_F(GivenWeights, OfLessThanAKilobyteStayInsideUnlessTheOptionsSaySo) {
  onnx::ModelProto model = full_model();
  set_bytes(model.mutable_graph()->add_initializer(), "kept", kMinMovedBytes / 4 - 1, 20);
  set_bytes(model.mutable_graph()->add_initializer(), "moved", kMinMovedBytes / 4, 21);
  ASSERT_THAT(save(given(model), "out", with(Layout::kSingle)), IsOk());
  EXPECT_THAT(external_names(model_in("out")),
              testing::AllOf(testing::Contains("moved"), testing::Not(testing::Contains("kept"))));
  EXPECT_EQ(values_of(model_in("out")), values_of(given(model)));
  SaveOptions all = with(Layout::kSingle);
  all.plan.inline_below = 0;
  ASSERT_THAT(save(given(model), "all", all), IsOk());
  EXPECT_THAT(external_names(model_in("all")),
              testing::AllOf(testing::Contains("moved"), testing::Contains("kept")));
}

TEST_F(GivenWeights, ThatAreAllSmallAreSaved) {
  GraphBuilder b;
  b.input("x", kFloat, {4}).node("Add", {"x", "small"}, {"y"}).output("y", kFloat, {4});
  onnx::ModelProto model = b.model();
  set_bytes(model.mutable_graph()->add_initializer(), "small", 4, 1);
  const auto report = save(given(model), "out", with(Layout::kSingle));
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->bytes, 0U);
  EXPECT_EQ(values_of(model_in("out")), values_of(given(model)));
}

TEST_F(GivenWeights, ThatStayKeepTheirFields) {
  onnx::ModelProto model = full_model();
  auto* value = model.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t();
  value->clear_raw_data();
  value->mutable_float_data()->Resize(400, 0.5F);
  ASSERT_THAT(save(given(model), "out", with(Layout::kSingle)), IsOk());
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(read_text(model_in("out"))));
  EXPECT_EQ(written.graph().node(0).SerializeAsString(), model.graph().node(0).SerializeAsString());
}

TEST_F(GivenWeights, AreNotMixedUpWithUnknownFields) {
  onnx::ModelProto model = full_model();
  const auto mark = [](google::protobuf::Message* message, const std::string& text) {
    message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(1234, text);
  };
  auto* graph = model.mutable_graph();
  mark(&model, "in the model");
  mark(graph, "in the graph");
  mark(graph->mutable_node(0), "in a node");
  mark(graph->mutable_node(0)->mutable_attribute(0), "in an attribute");
  mark(graph->mutable_node(0)->mutable_attribute(0)->mutable_t(), "in an attribute's tensor");
  mark(graph->mutable_initializer(0), "in an initializer");
  mark(graph->mutable_sparse_initializer(0), "in a sparse initializer");
  mark(model.mutable_functions(0), "in a function");
  for (const Layout layout : kLayouts) {
    const std::string out = "out" + std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(given(model), out, with(layout, true)), IsOk());
    ASSERT_THAT(save(model_in(out), out + "back", with(Layout::kInline)), IsOk());
    for (const auto& path : {model_in(out), model_in(out + "back")}) {
      const std::string bytes = read_text(path);
      for (const std::string place : {"model", "graph", "node", "attribute", "attribute's tensor",
                                      "initializer", "sparse initializer", "function"}) {
        const std::string text = "in " + std::string(place == "model" || place == "graph" ? "the "
                                                     : place[0] == 'a' || place[0] == 'i' ? "an "
                                                                                          : "a ");
        const std::string field =
            "\x92\x4d" + std::string(1, static_cast<char>((text + place).size())) + text + place;
        EXPECT_NE(bytes.find(field), std::string::npos) << place;
      }
    }
  }
}

TEST_F(GivenWeights, GiveTheSameFilesWithAnyNumberOfThreads) {
  for (const Layout layout : kLayouts) {
    SaveOptions options = with(layout, true);
    options.open.threads = 1;
    options.write.threads = 1;
    const std::string name = std::to_string(static_cast<int>(layout));
    ASSERT_THAT(save(given(), "one" + name, options), IsOk());
    options.open.threads = 8;
    options.write.threads = 8;
    ASSERT_THAT(save(given(), "eight" + name, options), IsOk());
    EXPECT_EQ(tree_of(dir_.path() / ("one" + name)), tree_of(dir_.path() / ("eight" + name)));
  }
}

TEST_F(GivenWeights, OfAModelInMemoryAlsoMove) {
  const auto report =
      relayout_model({.folder = dir_.path() / "out"}, full_model(), with(Layout::kSingle, true));
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(values_of(model_in("out")), values_of(given()));
}

TEST_F(GivenWeights, ThatAreEqualAreStoredOnceWhenAsked) {
  onnx::ModelProto model = full_model();
  *model.mutable_graph()->add_initializer() = model.graph().initializer(0);
  model.mutable_graph()->mutable_initializer()->rbegin()->set_name("twin");
  SaveOptions options = with(Layout::kSingle);
  options.plan.dedup = Dedup::kContent;
  ASSERT_THAT(save(given(model), "once", options), IsOk());
  options.plan.dedup = Dedup::kStorage;
  ASSERT_THAT(save(given(model), "twice", options), IsOk());
  const auto bytes = [&](const char* out) {
    return fs::file_size(dir_.path() / out / "model.data");
  };
  EXPECT_GT(bytes("twice"), bytes("once") + 119'000);
  EXPECT_EQ(values_of(model_in("once")), values_of(given(model)));
}

TEST_F(GivenWeights, OfTooFewBytesAreRefused) {
  onnx::ModelProto model = full_model();
  model.mutable_graph()->mutable_initializer(0)->set_raw_data(noise(119'996, 1));
  EXPECT_THAT(save(given(model), "out", with(Layout::kSingle)),
              FailsWith(ErrorCode::kCorrupt, "'raw': it contains 119996 bytes"));
  model = full_model();
  model.mutable_graph()->mutable_initializer(6)->set_dims(0, 3001);  // typed
  EXPECT_THAT(save(given(model), "out", with(Layout::kSingle)),
              FailsWith(ErrorCode::kCorrupt, "'typed': it has fewer values"));
  EXPECT_FALSE(fs::exists(dir_.path() / "out"));
}

TEST_F(GivenWeights, ThatDoNotFitIntoAModelAreRefusedBeforeAnyWork) {
  GraphBuilder b;
  b.external("large", kFloat, {600'000'000}, {{"location", "nowhere"}, {"length", "2400000000"}});
  EXPECT_THAT(save(given(b.model()), "out", with(Layout::kInline)),
              FailsWith(ErrorCode::kUnsupported, "2.40 GB of tensors do not fit"));
  EXPECT_FALSE(fs::exists(dir_.path() / "out"));
}

TEST_F(GivenWeights, AndTheModelAreCheckedForEveryFlippedByte) {
  ASSERT_THAT(save(given(), "all", with(Layout::kSingle, true)), IsOk());
  ASSERT_THAT(save(model_in("all"), "out", with(Layout::kInline)), IsOk());
  std::string bytes = read_text(model_in("out"));
  const std::size_t place = bytes.find(noise(400, 1)) + 77;
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  dir_.write("out/model.onnx", bytes);
  const auto report = verify_model(model_in("out"));
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->findings.size(), 2U);
  EXPECT_EQ(report->findings[0].code, FindingCode::kModelChanged);
  EXPECT_EQ(report->findings[1].code, FindingCode::kCrcDiffers);
  EXPECT_EQ(report->findings[1].tensor, "raw");
}

TEST_F(GivenWeights, StayBesideACheckpointsUnlessItReplacesThem) {
  const std::vector<TestTensor> tensors{
      {.name = "typed", .dtype = DType::kInt8, .shape = {3000}, .bytes = noise(3000, 99)}};
  const fs::path checkpoint = dir_.write("c.pt", torch_zip(tensors));
  SaveOptions options = with(Layout::kPerTensor);
  options.mapping.partial = Partial::kAllow;
  ASSERT_THAT(save(given(), "out", options, {checkpoint}), IsOk());
  EXPECT_EQ(external_names(model_in("out")), (std::vector<std::string>{"typed"}));
  auto values = values_of(given());
  values["0 0 typed"] = noise(3000, 99);
  EXPECT_EQ(values_of(model_in("out")), values);
}

TEST_F(GivenWeights, MoveBesideACheckpointsWhenAsked) {
  const std::vector<TestTensor> tensors{
      {.name = "typed", .dtype = DType::kInt8, .shape = {3000}, .bytes = noise(3000, 99)}};
  SaveOptions options = with(Layout::kSingle, true);
  options.mapping.partial = Partial::kAllow;
  const auto report = save(given(), "out", options, {dir_.write("c.pt", torch_zip(tensors))});
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->verified);
  EXPECT_GT(external_names(model_in("out")).size(), 5U);
  auto values = values_of(given());
  values["0 0 typed"] = noise(3000, 99);
  EXPECT_EQ(values_of(model_in("out")), values);
}

TEST_F(GivenWeights, AreNotWhatASaveWithoutACheckpointMeans) {
  const std::vector<fs::path> none;
  EXPECT_THAT(save_graph_with_external_data(dir_.path() / "out", "model.onnx", "initializers", none,
                                            given()),
              FailsWith(ErrorCode::kInvalidArgument, "relayout_model()"));
  EXPECT_FALSE(fs::exists(dir_.path() / "out"));
}

TEST_F(GivenWeights, OfACheckpointGoIntoTheModelWithTheInlineLayout) {
  const auto tensors = mixed_tensors(5);
  const fs::path checkpoint = dir_.write("c.pt", torch_zip(tensors));
  const fs::path graph = dir_.write("graph.onnx", *model_for(tensors).serialize());
  ASSERT_THAT(save(graph, "files", with(Layout::kPerTensor), {checkpoint}), IsOk());
  const auto report = save(graph, "out", with(Layout::kInline), {checkpoint});
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->verified);
  EXPECT_EQ(values_of(model_in("out")), values_of(model_in("files")));
  EXPECT_TRUE(external_names(model_in("out")).empty());
}

}  // namespace
}  // namespace onnx_external
