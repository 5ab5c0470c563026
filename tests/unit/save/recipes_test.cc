// Saves of tensors with recipes that permute, reshape and slice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "onnx_external/verify.h"
#include "save/make_plan.h"
#include "support/result_matchers.h"
#include "support/save_fixture.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

struct Made {
  std::string slot;
  Shape dims;
  Recipe recipe;
  std::vector<std::size_t> elements;  // of the key, in the order of the slot
};

// What becomes of the key "w" of [6, 4].
const std::vector<Made>& made_of_w() {
  static const std::vector<Made> kMade = {
      {"rows", {2, 4}, {RecipeStep::slice(0, 2, -2)}, {8, 9, 10, 11, 12, 13, 14, 15}},
      {"columns", {6, 1}, {RecipeStep::slice(1, 1, 2)}, {1, 5, 9, 13, 17, 21}},
      {"cube",
       {2, 4, 3},
       {RecipeStep::reshape({2, 3, 4}), RecipeStep::permute({0, 2, 1})},
       {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23}},
      {"joined",
       {6, 2},
       {RecipeStep::reshape({3, 2, 4}), RecipeStep::slice(2, 0, 2), RecipeStep::permute({1, 0, 2}),
        RecipeStep::reshape({-1, 2})},
       {0, 1, 8, 9, 16, 17, 4, 5, 12, 13, 20, 21}},
  };
  return kMade;
}

class Recipes : public testing::Test {
 protected:
  static Model graph() {
    GraphBuilder builder;
    std::vector<std::string> inputs;
    for (const Made& made : made_of_w()) {
      builder.input(made.slot, kFloat, made.dims);
      inputs.push_back(made.slot);
    }
    builder.node("Use", inputs, {"y"}).output("y", kFloat, {1});
    return Model::from_proto(builder.model(), {}).value();
  }

  static Mapping mapping() {
    Mapping mapping;
    for (std::uint32_t slot = 0; slot < made_of_w().size(); ++slot) {
      mapping.pairs.push_back({slot, 0, Rule::kMap, made_of_w()[slot].recipe});
    }
    return mapping;
  }

  std::string bytes_of(const Made& made) const {
    std::string out;
    for (const std::size_t element : made.elements) {
      out += w_.substr(element * 4, 4);
    }
    return out;
  }

  const std::string w_ = noise(96, 7);
  TempDir dir_;
  Checkpoint checkpoint_ =
      open_one(dir_.write("out/c.pt", torch_zip({{.name = "w", .shape = {6, 4}, .bytes = w_}})));
};

TEST_F(Recipes, WriteTheElementsInTheOrderThatTheyGive) {
  const Model graph = this->graph();
  const auto plan = make_plan(graph, checkpoint_, mapping(), {});
  ASSERT_THAT(plan, IsOk());
  WriteOptions options;
  options.sync = Sync::kNone;
  auto staged = write_plan(*plan, graph, checkpoint_, dir_.path() / "copy", options);
  ASSERT_THAT(staged, IsOk());
  const auto expected = expected_tensors(*plan, graph, checkpoint_);
  const auto report = verify_model_against(staged->model_path(), checkpoint_, expected);
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->ok()) << finding_text(report->findings.front());
  EXPECT_EQ(report->compared, made_of_w().size());
  ASSERT_THAT(staged->publish(), IsOk());
  for (const Made& made : made_of_w()) {
    EXPECT_EQ(read_text(dir_.path() / "copy" / "initializers" / made.slot), bytes_of(made))
        << made.slot;
  }
}

TEST_F(Recipes, LinkRowsButNotColumns) {
  const Model graph = this->graph();
  Mapping rows = mapping();
  rows.pairs.resize(1);
  const auto plan = make_plan(graph, checkpoint_, rows, {.layout = Layout::kLink});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->ranges[0].bytes, 32U);
  EXPECT_EQ(plan->ranges[0].offset, checkpoint_.plain_range(0)->offset + 32);
  EXPECT_THAT(make_plan(graph, checkpoint_, mapping(), {.layout = Layout::kLink}),
              FailsWith(ErrorCode::kUnsupported, "reorders its elements"));
}

TEST_F(Recipes, ThatComeToTheSameShareTheirBytes) {
  const Model graph = this->graph();
  Mapping twice = mapping();
  twice.pairs.resize(1);
  twice.pairs.push_back(twice.pairs[0]);
  twice.pairs[1].recipe = {RecipeStep::slice(0, 2, 6), RecipeStep::slice(0, 0, 2)};
  const auto plan = make_plan(graph, checkpoint_, twice, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->ranges.size(), 1U);
}

}  // namespace
}  // namespace onnx_external
