#include "onnx_external/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "save/layout.h"
#include "save/make_plan.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

class Plan : public testing::Test {
 protected:
  Result<SavePlan> plan(const std::vector<TestTensor>& tensors, const PlanOptions& options = {},
                        const SaveTarget& target = {}) {
    return plan(tensors, model_for(tensors), options, target);
  }
  Result<SavePlan> plan(const std::vector<TestTensor>& tensors, const Model& model,
                        const PlanOptions& options = {}, const SaveTarget& target = {}) {
    const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
    return make_plan(model, checkpoint, map_by_name(model, checkpoint), options, target);
  }

  TempDir dir_;
};

std::map<std::string, std::string> file_of_each(const SavePlan& plan) {
  std::map<std::string, std::string> files;
  for (const PlannedTensor& tensor : plan.tensors) {
    files[tensor.name] = tensor.range ? plan.files[plan.ranges[*tensor.range].file].name : "";
  }
  return files;
}

TEST_F(Plan, GivesEachTensorAFileAndTiedOnesTheSame) {
  const auto planned = plan(mixed_tensors(1));
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["large.weight"], "large.weight");
  EXPECT_EQ(files["tied.weight"], "large.weight");
  EXPECT_EQ(files["part"], "part");
  EXPECT_EQ(files["turned"], "turned");
  EXPECT_EQ(files["steps"], "");
  EXPECT_EQ(files["none"], "");
  EXPECT_EQ(planned->files.size(), 5U);
  EXPECT_EQ(planned->bytes, 1'200'000U + 64 + 64 + 40'000 + 4800);
  for (const DataRange& part : planned->ranges) {
    EXPECT_EQ(planned->tensors[part.source_tensor].nbytes, part.bytes);
    EXPECT_EQ(planned->files[part.file].bytes, part.bytes);
  }
}

TEST_F(Plan, TiesStridedViewsOfTheSameBytesOnly) {
  const std::vector<std::int64_t> turned{1, 40};
  const std::vector<TestTensor> tensors{
      {.name = "a", .shape = {40, 30}, .bytes = noise(4800, 1), .strides = turned},
      {.name = "b", .shape = {40, 30}, .strides = turned, .shares = "a"},
      {.name = "c", .shape = {40, 30}, .shares = "a"}};
  const auto planned = plan(tensors);
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["b"], "a");
  EXPECT_EQ(files["c"], "c");
}

TEST_F(Plan, WritesAReshapedViewOfADeflatedRecordOnce) {
  const std::vector<TestTensor> tensors{{.name = "a", .shape = {40, 30}, .bytes = noise(4800, 1)},
                                        {.name = "flat", .shape = {1200}, .shares = "a"},
                                        {.name = "part", .shape = {600}, .shares = "a"}};
  const Model model = model_for(tensors);
  const Checkpoint checkpoint =
      open_one(dir_.write("c.pt", torch_zip(tensors, {.deflated = true})));
  const auto planned = make_plan(model, checkpoint, map_by_name(model, checkpoint), {}, {});
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["flat"], "a");
  EXPECT_EQ(files["part"], "part");
  EXPECT_EQ(planned->bytes, 4800U + 2400U);
}

TEST_F(Plan, WritesReshapedViewsOnceThatAreConvertedAlike) {
  const std::vector<TestTensor> tensors{{.name = "a", .shape = {40, 30}, .bytes = noise(4800, 1)},
                                        {.name = "flat", .shape = {1200}, .shares = "a"},
                                        {.name = "same", .shape = {1200}, .shares = "a"}};
  GraphBuilder graph;
  const std::int32_t half = onnx_data_type(DType::kFloat16);
  graph.input("a", half, {40, 30}).input("flat", half, {1200});
  graph.input("same", kFloat, {1200}).node("Use", {"a", "flat", "same"}, {"y"});
  const Model model = Model::from_proto(graph.output("y", kFloat, {1}).model(), {}).value();
  const auto planned = plan(tensors, model);
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["flat"], "a");
  EXPECT_EQ(files["same"], "same") << "its values stay as they are";
}

TEST_F(Plan, KeepsSmallIntegersOfLowRankInline) {
  const std::vector<TestTensor> tensors{
      {.name = "fits", .dtype = DType::kInt64, .shape = {128}, .bytes = noise(1024, 1)},
      {.name = "long", .dtype = DType::kInt64, .shape = {129}, .bytes = noise(1032, 1)},
      {.name = "matrix", .dtype = DType::kInt64, .shape = {2, 2}, .bytes = noise(32, 1)},
      {.name = "float", .shape = {2}, .bytes = noise(8, 1)},
      {.name = "flags", .dtype = DType::kBool, .shape = {2}, .bytes = noise(2, 1)}};
  const auto planned = plan(tensors);
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["fits"], "");
  EXPECT_EQ(files["flags"], "");
  EXPECT_EQ(files["long"], "long");
  EXPECT_EQ(files["matrix"], "matrix");
  EXPECT_EQ(files["float"], "float");
}

TEST_F(Plan, KeepsTheScalesOfResizeInline) {
  const std::vector<TestTensor> tensors{{.name = "scales", .shape = {4}, .bytes = noise(16, 1)},
                                        {.name = "other", .shape = {4}, .bytes = noise(16, 2)}};
  GraphBuilder builder;
  builder.input("x", kFloat, {1, 1, kAnySize, 4}).input("scales", kFloat, {4});
  builder.input("other", kFloat, {4});
  builder.node("Resize", {"x", "", "scales"}, {"r"}).node("Add", {"r", "other"}, {"y"});
  builder.output("y", kFloat, {1});
  const auto planned = plan(tensors, Model::from_proto(builder.model(), {}).value());
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(files["scales"], "");
  EXPECT_EQ(files["other"], "other");
}

TEST_F(Plan, RefusesATypeThatOnnxLacks) {
  const std::vector<TestTensor> tensors{
      {.name = "w", .dtype = DType::kFloat4E2M1FnX2, .shape = {}, .bytes = "a"}};
  GraphBuilder builder;
  builder.input("w", 23, {}).node("Use", {"w"}, {"y"}).output("y", kFloat, {1});
  EXPECT_THAT(plan(tensors, Model::from_proto(builder.model(), {}).value()),
              FailsWith(ErrorCode::kUnsupported, "'w': ONNX has no type for float4_e2m1fn_x2"));
}

TEST_F(Plan, RefusesNamesThatAreNotPlain) {
  const std::vector<TestTensor> tensors{{.name = "w", .shape = {4}, .bytes = noise(16, 1)}};
  const Model model = model_for(tensors);
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
  const auto planned = [&](const SaveTarget& target) {
    return plan_save(model, checkpoint, map_by_name(model, checkpoint), target, {}, {});
  };
  EXPECT_THAT(planned({.folder = {}, .model_name = "a/b"}),
              FailsWith(ErrorCode::kInvalidArgument, "'a/b'"));
  EXPECT_THAT(planned({.folder = {}, .data_dir = ".."}),
              FailsWith(ErrorCode::kInvalidArgument, "'..'"));
}

TEST_F(Plan, TakesTheModelsExternalDataAlongUnlessItIsReplaced) {
  GraphBuilder builder;
  const auto entries = [](const char* location) {
    return std::vector<std::pair<std::string, std::string>>{
        {"location", location}, {"offset", "0"}, {"length", "16"}};
  };
  builder.external("kept", kFloat, {4}, entries("old.bin"));
  builder.external("twin", kFloat, {4}, entries("old.bin"));
  builder.external("replaced", kFloat, {4}, entries("missing.bin"));
  builder.node("Use", {"kept", "twin", "replaced"}, {"y"}).output("y", kFloat, {1});
  const std::vector<TestTensor> tensors{{.name = "replaced", .shape = {4}, .bytes = noise(16, 1)}};
  const auto planned = plan(tensors, Model::from_proto(builder.model(), {}).value());
  ASSERT_THAT(planned, IsOk());
  auto files = file_of_each(*planned);
  EXPECT_EQ(planned->tensors.size(), 3U);
  EXPECT_EQ(files["twin"], "kept");
  EXPECT_EQ(files["replaced"], "replaced");
  EXPECT_EQ(planned->bytes, 32U);
}

// Float tensors of these sizes in bytes, called "0", "1", ...
std::vector<TestTensor> tensors_of(const std::vector<std::size_t>& sizes) {
  std::vector<TestTensor> tensors;
  for (const std::size_t size : sizes) {
    const auto seed = static_cast<std::uint32_t>(tensors.size());
    tensors.push_back({.name = std::to_string(seed),
                       .shape = {static_cast<std::int64_t>(size / 4)},
                       .bytes = noise(size, seed)});
  }
  return tensors;
}

// "file@offset" of each tensor, in the plan's order.
std::vector<std::string> places(const SavePlan& plan) {
  std::vector<std::string> out;
  for (const PlannedTensor& tensor : plan.tensors) {
    const DataRange* part = tensor.range ? &plan.ranges[*tensor.range] : nullptr;
    out.push_back(part == nullptr ? "inline"
                                  : plan.location(part->file) + "@" + std::to_string(part->offset));
  }
  return out;
}

using Places = std::vector<std::string>;
constexpr std::size_t kLarge = kMinPageAlignedBytes;

TEST_F(Plan, PutsTensorsOfASingleFileInOrderOnPagesAndCacheLines) {
  const auto planned =
      plan(tensors_of({4, 100, kLarge, kLarge - 4, 8}), PlanOptions{.layout = Layout::kSingle});
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(places(*planned), (Places{"model.data@0", "model.data@64", "model.data@4096",
                                      "model.data@" + std::to_string(4096 + kLarge),
                                      "model.data@" + std::to_string(4096 + 2 * kLarge)}));
  ASSERT_EQ(planned->files.size(), 1U);
  EXPECT_EQ(planned->bytes, 4096 + 2 * kLarge + 8);
  EXPECT_EQ(planned->files[0].bytes, planned->bytes);
}

TEST_F(Plan, AlignsEveryTensorAsAsked) {
  const auto planned =
      plan(tensors_of({4, kLarge, 4}), PlanOptions{.layout = Layout::kSingle, .alignment = 512});
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(places(*planned), (Places{"model.data@0", "model.data@512",
                                      "model.data@" + std::to_string(512 + kLarge)}));
}

TEST_F(Plan, RejectsAnAlignmentThatIsNotAPowerOfTwoInItsLimits) {
  for (const std::uint64_t bad :
       {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{100}, 2 * kMaxAlignment}) {
    EXPECT_THAT(plan(tensors_of({4}), PlanOptions{.layout = Layout::kSingle, .alignment = bad}),
                FailsWith(ErrorCode::kInvalidArgument, "alignment " + std::to_string(bad)));
  }
}

TEST_F(Plan, NumbersSingleFilesAndShardsAsItNumbersDataFolders) {
  const auto single = plan(tensors_of({4}), PlanOptions{.layout = Layout::kSingle},
                           {.folder = {}, .model_name = "a.onnx", .data_dir = "initializers.12"});
  ASSERT_THAT(single, IsOk());
  EXPECT_EQ(places(*single), (Places{"a.12.data@0"}));
  const auto shards = plan(tensors_of({4}), PlanOptions{.layout = Layout::kShards},
                           {.folder = {}, .model_name = "a", .data_dir = "initializers.2"});
  ASSERT_THAT(shards, IsOk());
  EXPECT_EQ(places(*shards), (Places{"a.2-00001-of-00001.data@0"}));
}

TEST_F(Plan, BeginsAShardWhereTheLastOneIsFullAndSplitsNoTensor) {
  const auto planned = plan(tensors_of({64, 64, 4, 300, 4, 196, 200}),
                            PlanOptions{.layout = Layout::kShards, .max_shard_bytes = 260});
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(places(*planned),
            (Places{"model-00001-of-00004.data@0", "model-00001-of-00004.data@64",
                    "model-00001-of-00004.data@128", "model-00002-of-00004.data@0",
                    "model-00003-of-00004.data@0", "model-00003-of-00004.data@64",
                    "model-00004-of-00004.data@0"}));
}

TEST_F(Plan, GivesATensorThatIsTooLargeAShardAndSaysSo) {
  const auto planned = plan(tensors_of({4, 300, 260}),
                            PlanOptions{.layout = Layout::kShards, .max_shard_bytes = 260});
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->oversized, std::vector<std::size_t>{1});
  EXPECT_EQ(planned->files.size(), 3U);
}

SavePlan empty_plan() {
  SavePlan plan;
  plan.models.push_back({"model.onnx"});
  plan.data_dir = "initializers";
  return plan;
}

TEST(LayOut, RejectsMoreShardsThanTheirNamesCanNumber) {
  const PlanOptions options{.layout = Layout::kShards, .max_shard_bytes = 4};
  SavePlan plan = empty_plan();
  plan.ranges.resize(kMaxShards, {.bytes = 4});
  EXPECT_THAT(lay_out(plan, options), IsOk());
  plan.ranges.resize(kMaxShards + 1, {.bytes = 4});
  EXPECT_THAT(lay_out(plan, options), FailsWith(ErrorCode::kInvalidArgument, "100000 shards"));
}

TEST(LayOut, RefusesSizesThatAddUpTooFar) {
  SavePlan plan = empty_plan();
  plan.ranges.resize(2, {.bytes = std::uint64_t{1} << 63U});
  EXPECT_THAT(lay_out(plan, {.layout = Layout::kSingle}),
              FailsWith(ErrorCode::kCorrupt, "more than 2^64"));
}

TEST_F(Plan, StoresTiedTensorsOnceInEveryLayoutUnlessAskedNotTo) {
  for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
    const auto tied = plan(mixed_tensors(1), PlanOptions{.layout = layout});
    ASSERT_THAT(tied, IsOk());
    EXPECT_EQ(places(*tied)[0], places(*tied)[3]);
    const auto untied = plan(mixed_tensors(1), PlanOptions{.layout = layout, .dedup = Dedup::kOff});
    ASSERT_THAT(untied, IsOk());
    EXPECT_NE(places(*untied)[0], places(*untied)[3]);
    EXPECT_EQ(untied->ranges.size(), tied->ranges.size() + 1);
  }
}

TEST_F(Plan, OfASaveLooksAtTheFolderItIsGivenAndAtNoneWithoutOne) {
  const std::vector<TestTensor> tensors{{.name = "w", .shape = {4}, .bytes = noise(16, 1)}};
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
  const Model model = model_for(tensors);
  const Mapping mapping = map_by_name(model, checkpoint);
  dir_.write("out/model.onnx", "an old one");
  dir_.write("out/initializers.4/w", "its data");
  const SaveTarget target{.folder = dir_.path() / "out"};
  WriteOptions write;
  EXPECT_THAT(plan_save(model, checkpoint, mapping, target, {}, write),
              FailsWith(ErrorCode::kAlreadyExists, "model.onnx: exists"));
  write.overwrite = Overwrite::kAllow;
  const auto next = plan_save(model, checkpoint, mapping, target, {}, write);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(next->location(0), "initializers.5/w");
  const auto anywhere = plan_save(model, checkpoint, mapping, {}, {}, write);
  ASSERT_THAT(anywhere, IsOk());
  EXPECT_EQ(anywhere->location(0), "initializers/w");
}

TEST_F(Plan, OfASaveFindsEqualBytesIfAsked) {
  auto tensors = mixed_tensors(1);
  tensors[2].bytes = tensors[1].bytes;
  const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
  Model model = model_for(tensors);
  const auto plan = plan_save(model, checkpoint, map_by_name(model, checkpoint),
                              {.folder = dir_.path() / "out"}, {.dedup = Dedup::kContent}, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->files.size(), 4U);  // two tensors are equal, and one is tied
}

class MergeEqualBytes : public Plan {
 protected:
  Result<SavePlan> merged(const std::vector<TestTensor>& tensors, bool with_crc,
                          const PlanOptions& options = {.layout = Layout::kSingle}) {
    const Checkpoint checkpoint =
        open_one(dir_.write("c.pt", torch_zip(tensors, {.with_crc = with_crc})));
    const Model model = model_for(tensors);
    return merge_equal_bytes(
        make_plan(model, checkpoint, map_by_name(model, checkpoint), options).value(), model,
        checkpoint, options, 2);
  }
};

TEST_F(MergeEqualBytes, StoresThemOnceAtTheirFirstPlace) {
  auto tensors = tensors_of({100, 100, 200, 100, 8});
  tensors[3].bytes = tensors[1].bytes;
  for (const bool with_crc : {true, false}) {
    const auto planned = merged(tensors, with_crc);
    ASSERT_THAT(planned, IsOk());
    EXPECT_EQ(places(*planned), (Places{"model.data@0", "model.data@128", "model.data@256",
                                        "model.data@128", "model.data@512"}));
  }
}

TEST_F(MergeEqualBytes, DistinguishesTensorsWithEqualCrcs) {
  auto tensors = tensors_of({8, 8});
  tensors[0].bytes = std::string(8, '\0');
  tensors[1].bytes = std::string("\x01\0\0\0\x65\x67\xbc\xb8", 8);
  ASSERT_EQ(crc32_of(tensors[0].bytes), crc32_of(tensors[1].bytes));
  ASSERT_NE(tensors[0].bytes, tensors[1].bytes);
  const auto planned = merged(tensors, true);
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->ranges.size(), 2U);
}

TEST_F(MergeEqualBytes, ComparesViewsByTheirValues) {
  std::vector<TestTensor> tensors{{.name = "plain", .shape = {2, 2}, .bytes = "aaaabbbbccccdddd"},
                                  {.name = "turned",
                                   .shape = {2, 2},
                                   .bytes = "aaaaccccbbbbdddd",
                                   .strides = std::vector<std::int64_t>{1, 2}}};
  const auto planned = merged(tensors, true, {});
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(places(*planned), (Places{"initializers/plain@0", "initializers/plain@0"}));
  EXPECT_EQ(planned->files.size(), 1U);
}

}  // namespace
}  // namespace onnx_external
