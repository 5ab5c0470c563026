#include "onnx_external/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

class Plan : public testing::Test {
 protected:
  Result<SavePlan> plan(const std::vector<TestTensor>& tensors, const PlanOptions& options = {}) {
    return plan(tensors, model_for(tensors), options);
  }
  Result<SavePlan> plan(const std::vector<TestTensor>& tensors, const Model& model,
                        const PlanOptions& options = {}) {
    const Checkpoint checkpoint = open_one(dir_.write("c.pt", torch_zip(tensors)));
    return make_plan(model, checkpoint, map_by_name(model, checkpoint), options);
  }

  TempDir dir_;
};

std::map<std::string, std::string> file_of_each(const SavePlan& plan) {
  std::map<std::string, std::string> files;
  for (const PlannedTensor& tensor : plan.tensors) {
    files[tensor.name] = tensor.part ? plan.files[plan.parts[*tensor.part].file].name : "";
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
  for (const PlannedPart& part : planned->parts) {
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
  builder.input("x", kFloat, {1, 1, kSymbolic, 4}).input("scales", kFloat, {4});
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
  EXPECT_THAT(plan(tensors, PlanOptions{.model_name = "a/b"}),
              FailsWith(ErrorCode::kInvalidArgument, "'a/b'"));
  EXPECT_THAT(plan(tensors, PlanOptions{.data_dir = ".."}),
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

}  // namespace
}  // namespace onnx_external
