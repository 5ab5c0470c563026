// Saves of tensors with recipes: transposed matrices, read in tiles when they are large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "jobs/plan_models.h"
#include "onnx/graph_facts.h"
#include "onnx_external/verify.h"
#include "save/make_plan.h"
#include "save/planned_bytes.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

const Recipe kTransposed{RecipeStep::transpose()};

WriteOptions with_threads(int threads) {
  WriteOptions options;
  options.threads = threads;
  options.sync = Sync::kNone;
  return options;
}

class Transposed : public testing::Test {
 protected:
  Model model(std::int32_t wide_type = kFloat) const {
    GraphBuilder builder;
    builder.input("wide.T", wide_type, {1100, 300}).input("small.T", kFloat, {30, 40});
    builder.input("square.T", kFloat, {20, 20}).input("row.T", kFloat, {50, 1});
    builder.input("same", kFloat, {20, 20}).input("again.T", kFloat, {1100, 300});
    builder.node("Use", {"wide.T", "small.T", "square.T", "row.T", "same", "again.T"}, {"y"});
    builder.output("y", kFloat, {1});
    return Model::from_proto(builder.model(), {}).value();
  }

  // "wide.T" is "wide" transposed; "same" is "square" transposed twice.
  Mapping mapping(const Model& graph, const Checkpoint& checkpoint) const {
    Mapping mapping;
    const auto key_of = [&](const std::string& slot) -> std::string {
      return slot == "same"      ? "square"
             : slot == "again.T" ? "tied"
                                 : slot.substr(0, slot.find('.'));
    };
    for (std::uint32_t slot = 0; slot < graph.facts().slots.size(); ++slot) {
      const std::string& name = graph.facts().slots[slot].name;
      for (std::uint32_t key = 0; key < checkpoint.tensors().size(); ++key) {
        if (checkpoint.tensors()[key].name == key_of(name)) {
          mapping.pairs.push_back({slot, key, Rule::kMap, kTransposed});
        }
      }
      if (name == "same") {
        mapping.pairs.back().recipe.push_back(RecipeStep::transpose());
      }
    }
    return mapping;
  }

  Checkpoint checkpoint() const { return open_one(dir_.write("c.pt", torch_zip(tensors_))); }

  Result<SavePlan> plan(const Model& graph, const Checkpoint& opened,
                        const PlanOptions& options = {}) const {
    return make_plan(graph, opened, mapping(graph, opened), options);
  }

  Status save(const Checkpoint& opened, const fs::path& out, const WriteOptions& options,
              const PlanOptions& plan_options = {}, std::int32_t wide_type = kFloat) const {
    Model graph = model(wide_type);
    auto planned = plan(graph, opened, plan_options);
    auto staged = planned ? write_plan(*planned, graph, opened, out, options)
                          : Result<StagedSave>(fail(planned.error()));
    return staged ? staged->publish() : Status(fail(staged.error()));
  }

  std::vector<ExpectedTensor> expected(const Checkpoint& opened) const {
    const Model graph = model();
    std::vector<ExpectedTensor> all;
    for (const MappedPair& pair : mapping(graph, opened).pairs) {
      all.push_back({graph.facts().slots[pair.slot].name, 0, pair.key});
      all.back().casts = Casts::kAllow;
      all.back().recipe = pair.recipe;
    }
    return all;
  }

  TempDir dir_;
  fs::path out_ = dir_.path() / "out";
  const std::vector<TestTensor> tensors_ = {
      {.name = "wide", .shape = {300, 1100}, .bytes = noise(1'320'000, 1)},
      {.name = "small", .shape = {40, 30}, .bytes = noise(4800, 2)},
      {.name = "square", .shape = {20, 20}, .bytes = noise(1600, 3)},
      {.name = "row", .shape = {1, 50}, .bytes = noise(200, 4)},
      {.name = "tied", .shape = {300, 1100}, .shares = "wide"},
  };
  const std::string wide_ = transposed(tensors_[0].bytes, 300, 1100);
};

TEST_F(Transposed, WritesTheBytesOfTheTransposedMatrices) {
  ASSERT_THAT(save(checkpoint(), out_, with_threads(1)), IsOk());
  const fs::path data = out_ / "initializers";
  EXPECT_TRUE(read_text(data / "wide.T") == wide_);
  EXPECT_EQ(read_text(data / "small.T"), transposed(tensors_[1].bytes, 40, 30));
  EXPECT_EQ(read_text(data / "square.T"), transposed(tensors_[2].bytes, 20, 20));
  EXPECT_EQ(read_text(data / "row.T"), tensors_[3].bytes);
  EXPECT_EQ(read_text(data / "same"), tensors_[2].bytes);
  EXPECT_FALSE(fs::exists(data / "again.T"));
  const auto saved = Model::load(out_ / "model.onnx");
  ASSERT_THAT(saved, IsOk());
  EXPECT_EQ(saved->external_tensors()[0].dims, (Shape{1100, 300}));
}

TEST_F(Transposed, GivesTheSameBytesWithAnyNumberOfThreadsAndChecksums) {
  const Checkpoint opened = checkpoint();
  for (const Layout layout :
       {Layout::kPerTensor, Layout::kSingle, Layout::kShards, Layout::kInline}) {
    std::set<std::map<std::string, std::string>> trees;
    for (const int threads : {1, 2, 5}) {
      const fs::path out = dir_.path() / std::to_string(threads);
      PlanOptions options;
      options.layout = layout;
      ASSERT_THAT(save(opened, out, with_threads(threads), options), IsOk());
      trees.insert(tree_of(out));
      const std::string data =
          read_text(out / (layout == Layout::kPerTensor ? "initializers/wide.T"
                           : layout == Layout::kSingle  ? "model.data"
                           : layout == Layout::kInline  ? "model.onnx"
                                                        : "model-00001-of-00001.data"));
      EXPECT_NE(data.find(wide_), std::string::npos);
      fs::remove_all(out);
    }
    EXPECT_EQ(trees.size(), 1U);
  }
  WriteOptions options = with_threads(2);
  options.checksum = Checksum::kSha1;
  ASSERT_THAT(save(opened, out_, options), IsOk());
  const auto report = verify_model_against(out_ / "model.onnx", opened, expected(opened));
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
}

TEST_F(Transposed, ConvertsWhatItTransposes) {
  const Checkpoint opened = checkpoint();
  ASSERT_THAT(save(opened, out_, with_threads(2), {}, onnx::TensorProto::FLOAT16), IsOk());
  std::string halves(wide_.size() / 2, '\0');
  cast_elements(DType::kFloat32, DType::kFloat16, std::as_bytes(std::span(wide_)),
                std::as_writable_bytes(std::span(halves)));
  EXPECT_TRUE(read_text(out_ / "initializers/wide.T") == halves);
  EXPECT_TRUE(read_text(out_ / "initializers/again.T") == wide_);
  const auto report = verify_model_against(out_ / "model.onnx", opened, expected(opened));
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok()) << finding_text(report->findings[0]);
  EXPECT_EQ(report->converted, 1U);
}

TEST_F(Transposed, SharesAPartWithTheSameTensorInTheSameOrderOnly) {
  const Model graph = model();
  const Checkpoint opened = checkpoint();
  const auto made = plan(graph, opened);
  ASSERT_THAT(made, IsOk());
  std::map<std::string, std::uint32_t> part;
  for (const PlannedTensor& tensor : made->tensors) {
    part[tensor.name] = tensor.range.value();
  }
  EXPECT_EQ(part["wide.T"], part["again.T"]);
  EXPECT_NE(part["square.T"], part["same"]);
  EXPECT_EQ(made->ranges.size(), 5U);
}

TEST_F(Transposed, LinksOnlyTensorsThatAreUnchangedInTheCheckpoint) {
  const Model graph = model();
  const Checkpoint opened = checkpoint();
  Mapping mapping = this->mapping(graph, opened);
  const PlanOptions options{.layout = Layout::kLink};
  EXPECT_THAT(make_plan(graph, opened, mapping, options),
              FailsWith(ErrorCode::kUnsupported, "tensor 'wide': it is transposed"));
  std::erase_if(mapping.pairs, [&](const MappedPair& pair) {
    const std::string& name = graph.facts().slots[pair.slot].name;
    return name != "row.T" && name != "same";
  });
  const auto made = make_plan(graph, opened, mapping, options);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->ranges.size(), 2U);
}

TEST_F(Transposed, IsAnotherJobThanTheUntransposedSquareMatrix) {
  const Model graph = model();
  const Checkpoint opened = checkpoint();
  Mapping mapping = this->mapping(graph, opened);
  const auto name = [&]() -> std::string {
    const auto made = make_plan(graph, opened, mapping, {});
    return name_job(made.value(), graph, opened).value();
  };
  const std::string before = name();
  EXPECT_EQ(name(), before);
  for (MappedPair& pair : mapping.pairs) {
    if (graph.facts().slots[pair.slot].name == "square.T") {
      pair.recipe.clear();
    }
  }
  EXPECT_NE(name(), before);
}

TEST_F(Transposed, IsRejectedForTensorsThatAreNotMatrices) {
  GraphBuilder builder;
  builder.input("cube", kFloat, {2, 3, 4}).node("Use", {"cube"}, {"y"}).output("y", kFloat, {1});
  const Model graph = Model::from_proto(builder.model(), {}).value();
  const Checkpoint opened = open_one(dir_.write(
      "cube.pt", torch_zip({{.name = "cube", .shape = {2, 3, 4}, .bytes = noise(96, 5)}})));
  Mapping mapping;
  mapping.pairs.push_back({0, 0, Rule::kMap, kTransposed});
  EXPECT_THAT(make_plan(graph, opened, mapping, {}),
              FailsWith(ErrorCode::kMismatch, "tensor 'cube': only a matrix can be transposed"));
}

TEST_F(Transposed, AndConvertedWhereTheRecipeSaysSo) {
  GraphBuilder builder;
  builder.input("w", onnx::TensorProto::FLOAT16, {3, 2}).node("Use", {"w"}, {"y"});
  builder.output("y", kFloat, {1});
  const Checkpoint opened = open_one(dir_.write(
      "w.pt", torch_zip({{.name = "w", .shape = {2, 3}, .bytes = f32({1, 2, 3, 4, 5, 6})}})));
  const Model graph = Model::from_proto(builder.model(), {}).value();
  Mapping mapping;
  mapping.pairs.push_back({0, 0, Rule::kMap, {RecipeStep::transpose(), RecipeStep::cast()}});
  const auto plan = make_plan(graph, opened, mapping, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->tensors[0].cast_to, DType::kFloat16);
  EXPECT_EQ(plan->tensors[0].nbytes, 12U);
  std::uint16_t values[6] = {};
  ASSERT_THAT(read_planned(opened, plan->tensors[0], 0, std::as_writable_bytes(std::span(values))),
              IsOk());
  EXPECT_THAT(values, testing::ElementsAre(0x3c00, 0x4400, 0x4000, 0x4500, 0x4200, 0x4600));
}

TEST_F(Transposed, ACastNeedsATypeThatTheGraphStates) {
  GraphBuilder builder;
  builder.node("Use", {"w"}, {"y"}).output("y", kFloat, {1});
  const Checkpoint opened =
      open_one(dir_.write("w.pt", torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}})));
  const Model graph = Model::from_proto(builder.model(), {}).value();
  Mapping mapping;
  mapping.pairs.push_back({0, 0, Rule::kMap, {RecipeStep::cast()}});
  EXPECT_THAT(make_plan(graph, opened, mapping, {}),
              FailsWith(ErrorCode::kMismatch, "does not state the type"));
}

TEST_F(Transposed, IsVerifiedAgainstTheCheckpointAndDamageIsFound) {
  const Checkpoint opened = checkpoint();
  ASSERT_THAT(save(opened, out_, with_threads(1)), IsOk());
  for (const int threads : {1, 3}) {
    VerifyOptions options;
    options.threads = threads;
    const auto good = verify_model_against(out_ / "model.onnx", opened, expected(opened), options);
    ASSERT_THAT(good, IsOk());
    EXPECT_TRUE(good->ok());
    EXPECT_EQ(good->compared, 6U);
    std::string damaged = wide_;
    damaged[1'234'567] ^= 1;
    damaged[765'432] ^= 1;
    dir_.write("out/initializers/wide.T", damaged);
    const auto found = verify_model_against(out_ / "model.onnx", opened, expected(opened), options);
    ASSERT_THAT(found, IsOk());
    ASSERT_EQ(found->findings.size(), 4U);  // bytes and CRC, of two names
    EXPECT_EQ(found->findings[0].code, FindingCode::kBytesDiffer);
    EXPECT_EQ(found->findings[0].message.substr(0, 11), "byte 765432");
    EXPECT_EQ(found->findings[1].code, FindingCode::kCrcDiffers);
    dir_.write("out/initializers/wide.T", wide_);
  }
}

TEST_F(Transposed, IsReadBackAgainstTheCrcThatWasTakenWhileItWasWritten) {
  const Checkpoint opened = checkpoint();
  Model graph = model();
  const auto made = plan(graph, opened);
  ASSERT_THAT(made, IsOk());
  const auto staged = write_plan(*made, graph, opened, out_, with_threads(2));
  ASSERT_THAT(staged, IsOk());
  std::vector<ExpectedTensor> wanted = expected(opened);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].written_crc = staged->written().range_crcs[*made->tensors[i].range];
  }
  VerifyOptions options;
  options.compare = Compare::kRecordedCrc;
  const auto good = verify_model_against(staged->model_path(), opened, wanted, options);
  ASSERT_THAT(good, IsOk());
  EXPECT_TRUE(good->ok());
  // A byte that changed on its way to the disk.
  const fs::path file = staged->directory() / "initializers/wide.T";
  std::string damaged = wide_;
  damaged[99] ^= 1;
  std::ofstream(file, std::ios::binary) << damaged;
  const auto found = verify_model_against(staged->model_path(), opened, wanted, options);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->findings.size(), 4U);
  EXPECT_EQ(found->findings[0].message.substr(0, 8), "byte 99 ");
}

TEST_F(Transposed, IsInTheManifestWithItsRecipe) {
  const Checkpoint opened = checkpoint();
  ASSERT_THAT(save(opened, out_, with_threads(1)), IsOk());
  const std::string text = read_text(out_ / "initializers/manifest.json");
  const auto manifest = parse_manifest(text);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->tensors[0].recipe, kTransposed);
  // Mapping alone cannot know what "wide.T" is.
  const auto wanted = expected_tensors(out_ / "model.onnx", opened, {});
  ASSERT_THAT(wanted, IsOk());
  const auto report = verify_model_against(out_ / "model.onnx", opened, *wanted);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->compared_by_manifest, 6U);
}

}  // namespace
}  // namespace onnx_external
