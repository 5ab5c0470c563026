// Files beside a model that are not its own data: what a save and a verification say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "onnx/side_files.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void set_int(onnx::NodeProto* node, const char* name, std::int64_t value) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

void make_context(onnx::NodeProto* node, const std::string& file, std::int64_t embed_mode,
                  std::int64_t main_context = 1) {
  node->set_op_type("EPContext");
  node->set_domain("com.microsoft");
  node->add_output("context." + file);
  set_int(node, "embed_mode", embed_mode);
  set_int(node, "main_context", main_context);
  auto* attribute = node->add_attribute();
  attribute->set_name("ep_cache_context");
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(file);
}

onnx::ModelProto model_of_one_weight() {
  GraphBuilder b;
  b.input("x", kFloat, {4}).initializer("w", kFloat, {300}, noise(1200, 1));
  b.node("Use", {"x", "w"}, {"y"}).output("y", kFloat, {4});
  return b.model();
}

onnx::ModelProto compiled_model() {
  onnx::ModelProto model = model_of_one_weight();
  make_context(model.mutable_graph()->add_node(), "m_ctx.bin", 0);
  return model;
}

TEST(SideFiles, AreThoseOfContextsThatAreNotEmbedded) {
  onnx::ModelProto model = model_of_one_weight();
  auto* graph = model.mutable_graph();
  make_context(graph->add_node(), "outside.bin", 0);
  make_context(graph->add_node(), "outside.bin", 0);
  make_context(graph->add_node(), "bytes of a context", 1);
  make_context(graph->add_node(), "of another node", 0, 0);
  auto* branch = graph->add_node()->add_attribute();
  branch->set_type(onnx::AttributeProto::GRAPH);
  make_context(branch->mutable_g()->add_node(), "branch.bin", 0);
  make_context(model.add_functions()->add_node(), "a/function.bin", 0);
  EXPECT_THAT(list_side_files(model), ElementsAre("a/function.bin", "branch.bin", "outside.bin"));
}

// Its weight is in w.bin.
std::string model_of_w_bin() {
  GraphBuilder b;
  b.input("x", kFloat, {4});
  b.external("w", kFloat, {300}, {{"location", "w.bin"}, {"offset", "0"}, {"length", "1200"}});
  b.node("Use", {"x", "w"}, {"y"}).output("y", kFloat, {4});
  return b.model().SerializeAsString();
}

class BesideAModel : public testing::Test {
 protected:
  Result<SaveReport> save(const fs::path& graph, const std::string& out) {
    SaveOptions options;
    options.plan.layout = Layout::kSingle;
    options.write.sync = Sync::kNone;
    options.write.overwrite = Overwrite::kAllow;
    return relayout_model({.folder = dir_.path() / out}, graph, options);
  }

  const TempDir dir_;
};

TEST_F(BesideAModel, AFileOfAContextThatIsMissingIsNotedAndFound) {
  const fs::path graph = dir_.write("compiled.onnx", compiled_model().SerializeAsString());
  dir_.write("m_ctx.bin", "compiled");
  const auto report = save(graph, "out");
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->notes, ElementsAre(HasSubstr("EPContext nodes need the file 'm_ctx.bin'")));
  const auto missing = verify_model(report->models[0].model);
  ASSERT_THAT(missing, IsOk());
  ASSERT_EQ(missing->findings.size(), 1U);
  EXPECT_EQ(missing->findings[0].code, FindingCode::kMissingFile);
  EXPECT_EQ(missing->findings[0].file, "m_ctx.bin");
  fs::copy(dir_.path() / "m_ctx.bin", dir_.path() / "out");
  EXPECT_TRUE(verify_model(report->models[0].model)->ok());
  const auto again = save(graph, "out");
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->notes, IsEmpty());
}

TEST_F(BesideAModel, AContextThatLeavesTheFolderIsFound) {
  onnx::ModelProto model = model_of_one_weight();
  make_context(model.mutable_graph()->add_node(), "../secret", 0);
  dir_.write("secret", "x");
  const auto report = save(dir_.write("compiled.onnx", model.SerializeAsString()), "out");
  ASSERT_THAT(report, IsOk());
  const auto verified = verify_model(report->models[0].model);
  ASSERT_THAT(verified, IsOk());
  ASSERT_EQ(verified->findings.size(), 1U);
  EXPECT_EQ(verified->findings[0].code, FindingCode::kBadLocation);
}

TEST_F(BesideAModel, DataOfAnotherToolsModelThatIsReplacedIsNoted) {
  const fs::path out = dir_.path() / "out";
  fs::create_directory(out);
  dir_.write("out/w.bin", noise(1200, 1));
  const fs::path model = dir_.write("out/model.onnx", model_of_w_bin());
  const auto report = save(model, "out");
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(fs::exists(out / "w.bin"));
  EXPECT_THAT(report->notes, ElementsAre(testing::AllOf(
                                 HasSubstr("'w.bin' (1.20 kB) contains data of the replaced model"),
                                 HasSubstr("rm '" + (out / "w.bin").string() + "'"))));
  const auto again = save(model, "out");  // now it replaces what a save wrote
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->notes, IsEmpty());
}

TEST_F(BesideAModel, ACheckpointLinkedToAReplacedModelIsNotReportedAsLeftOver) {
  fs::create_directory(dir_.path() / "out");
  dir_.write("out/w.bin", noise(1200, 1));
  const fs::path graph = dir_.write("out/graph.onnx", model_of_w_bin());
  SaveOptions options;
  options.plan.layout = Layout::kLink;
  options.write.sync = Sync::kNone;
  ASSERT_THAT(relayout_model({.folder = dir_.path() / "out"}, graph, options), IsOk());
  const auto copied = save(graph, "out");
  ASSERT_THAT(copied, IsOk());
  EXPECT_THAT(copied->notes, IsEmpty());
  EXPECT_TRUE(fs::exists(dir_.path() / "out" / "w.bin"));
}

}  // namespace
}  // namespace onnx_external
