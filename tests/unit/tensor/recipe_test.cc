#include "onnx_external/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

const RecipeStep kTranspose = RecipeStep::transpose();
const RecipeStep kCast = RecipeStep::cast();

TensorView contiguous(Shape shape, DType dtype = DType::kFloat32) {
  TensorView view;
  view.dtype = dtype;
  view.strides = contiguous_strides(shape);
  view.shape = std::move(shape);
  return view;
}

// The places of the elements in the storage, in row-major order.
std::vector<std::int64_t> places(const TensorView& view) {
  std::vector<std::int64_t> found{static_cast<std::int64_t>(view.storage_offset) / 4};
  for (std::size_t d = 0; d < view.shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t place : found) {
      for (std::int64_t i = 0; i < view.shape[d]; ++i) {
        next.push_back(place + i * view.strides[d]);
      }
    }
    found = std::move(next);
  }
  return found;
}

TEST(Recipe, IsPrintedInTheOrderOfItsSteps) {
  const Recipe recipe{kTranspose, RecipeStep::permute({1, 0}), RecipeStep::reshape({}),
                      RecipeStep::slice(0, -2, 4), kCast};
  EXPECT_EQ(recipe_text(recipe), "transpose, permute [1, 0], reshape [], slice [0, -2, 4], cast");
  EXPECT_EQ(recipe_done_text(recipe),
            "transposed, permuted [1, 0], reshaped [], sliced [0, -2, 4], cast");
}

TEST(Recipe, ATransposeSwapsTheDimensionsOfAMatrixAlone) {
  EXPECT_EQ(*apply_recipe({kTranspose}, Shape{2, 3}), (Shape{3, 2}));
  EXPECT_EQ(*apply_recipe({kTranspose, kTranspose}, Shape{2, 3}), (Shape{2, 3}));
  EXPECT_THAT(apply_recipe({kTranspose}, Shape{2, 3, 4}),
              FailsWith(ErrorCode::kMismatch, "only a matrix can be transposed"));
}

TEST(Recipe, APermutationOrdersAllDimensions) {
  const auto view = apply_recipe({RecipeStep::permute({2, 0, -2})}, contiguous({2, 3, 4}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->shape, ElementsAre(4, 2, 3));
  EXPECT_THAT(view->strides, ElementsAre(1, 12, 4));
}

TEST(Recipe, APermutationOfOtherDimensionsIsRefused) {
  for (const auto& dims : {std::vector<std::int64_t>{0}, {0, 0}, {0, 2}, {-3, 0}, {0, 1, 0}}) {
    EXPECT_THAT(apply_recipe({RecipeStep::permute(dims)}, Shape{2, 3}),
                FailsWith(ErrorCode::kMismatch, "permute ["));
  }
}

TEST(Recipe, ASliceKeepsTheIndicesFromItsStartToBeforeItsStop) {
  const auto view = apply_recipe({RecipeStep::slice(1, -3, 3)}, contiguous({2, 4}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->shape, ElementsAre(2, 2));
  EXPECT_THAT(places(*view), ElementsAre(1, 2, 5, 6));
}

TEST(Recipe, ASliceOfNothingOrBeyondTheEndIsRefused) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& [start, stop] : {std::pair<std::int64_t, std::int64_t>{0, 5},
                                    {0, kMost},
                                    {-5, 4},
                                    {-kMost - 1, 4},
                                    {2, 2},
                                    {3, 1},
                                    {4, 4},
                                    {0, 0}}) {
    EXPECT_THAT(apply_recipe({RecipeStep::slice(0, start, stop)}, Shape{4, 2}),
                FailsWith(ErrorCode::kMismatch, "the dimension has 4 indices"))
        << start << " " << stop;
  }
  EXPECT_THAT(apply_recipe({RecipeStep::slice(2, 0, 1)}, Shape{4, 2}),
              FailsWith(ErrorCode::kMismatch, "there is no dimension 2 in [4, 2]"));
  EXPECT_THAT(apply_recipe({RecipeStep::slice(0, 0, 1)}, Shape{}),
              FailsWith(ErrorCode::kMismatch, "there is no dimension 0 in []"));
}

TEST(Recipe, AReshapeKeepsTheOrderOfTheElements) {
  EXPECT_EQ(*apply_recipe({RecipeStep::reshape({3, -1})}, Shape{2, 6}), (Shape{3, 4}));
  EXPECT_EQ(*apply_recipe({RecipeStep::reshape({})}, Shape{1, 1}), Shape{});
  EXPECT_EQ(*apply_recipe({RecipeStep::reshape({2, -1})}, Shape{0, 3}), (Shape{2, 0}));
  const auto view = apply_recipe({RecipeStep::reshape({4, 1, 3})}, contiguous({2, 6}));
  ASSERT_THAT(view, IsOk());
  EXPECT_TRUE(is_contiguous(view->shape, view->strides));
}

TEST(Recipe, AReshapeToAnotherNumberOfElementsIsRefused) {
  for (const auto& shape :
       {Shape{5}, Shape{2, 3, 2}, Shape{-1, 4}, Shape{-1, 0}, Shape{1L << 62, 1L << 62}}) {
    EXPECT_THAT(apply_recipe({RecipeStep::reshape(shape)}, Shape{2, 3}),
                FailsWith(ErrorCode::kMismatch, "a tensor of [2, 3] has 6 elements"))
        << shape_text(shape);
  }
}

// The rows of rotary heads, as checkpoints of Llama are converted.
TEST(Recipe, AReshapeMayJoinDimensionsThatLieApart) {
  const Recipe recipe{RecipeStep::reshape({2, 3, 2, 5}), RecipeStep::permute({0, 2, 1, 3}),
                      RecipeStep::reshape({12, 5})};
  const auto view = apply_recipe(recipe, contiguous({12, 5}));
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(*apply_recipe(recipe, Shape{12, 5}), (Shape{12, 5}));
  EXPECT_THAT(view->shape, ElementsAre(2, 2, 3, 5));
  EXPECT_THAT(view->strides, ElementsAre(30, 5, 10, 1));
}

TEST(Recipe, ASliceOfJoinedDimensionsFollowsThem) {
  const Recipe joined{RecipeStep::permute({1, 0}), RecipeStep::reshape({-1})};  // 3 times 4
  const TensorView matrix = contiguous({4, 3});
  const auto all = places(*apply_recipe(joined, matrix));
  for (const auto& [start, stop] : {std::pair{0, 12}, {4, 12}, {5, 7}, {4, 8}, {11, 12}}) {
    Recipe recipe = joined;
    recipe.push_back(RecipeStep::slice(0, start, stop));
    const auto view = apply_recipe(recipe, matrix);
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(places(*view), std::vector(all.begin() + start, all.begin() + stop));
    EXPECT_EQ(*apply_recipe(recipe, matrix.shape), Shape{stop - start});
  }
  for (const auto& [start, stop] : {std::pair{0, 5}, {3, 5}, {2, 12}}) {
    Recipe recipe = joined;
    recipe.push_back(RecipeStep::slice(0, start, stop));
    EXPECT_THAT(apply_recipe(recipe, matrix), FailsWith(ErrorCode::kMismatch, "cuts through"));
  }
}

TEST(Recipe, AReshapeThatCutsThroughAnotherOrderIsRefused) {
  EXPECT_THAT(apply_recipe({kTranspose, RecipeStep::reshape({2, 3, 2})}, contiguous({3, 4})),
              FailsWith(ErrorCode::kMismatch, "reshape [2, 3, 2]: its elements are not in"));
}

TEST(Recipe, StepsChainOverStridesAndOffsets) {
  const Recipe recipe{RecipeStep::slice(0, 1, 3), RecipeStep::reshape({2, 2, 3}),
                      RecipeStep::permute({2, 0, 1}), RecipeStep::slice(0, 1, 2)};
  const auto view = apply_recipe(recipe, contiguous({4, 6}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->shape, ElementsAre(1, 2, 2));
  EXPECT_THAT(places(*view), ElementsAre(7, 10, 13, 16));
}

TEST(Recipe, AnEmptyTensorHasNoPlaces) {
  const Recipe recipe{RecipeStep::slice(1, 2, 3), RecipeStep::permute({1, 0}),
                      RecipeStep::reshape({4, 0})};
  const auto view = apply_recipe(recipe, contiguous({0, 3}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->shape, ElementsAre(4, 0));
  EXPECT_EQ(view->storage_offset, 0U);
}

TEST(Recipe, ValuesThatShareBytesStayInPlace) {
  const TensorView view = contiguous({2, 2}, DType::kFloat4E2M1FnX2);
  for (const RecipeStep& step : {kTranspose, RecipeStep::slice(0, 0, 1)}) {
    EXPECT_THAT(apply_recipe({step}, view), FailsWith(ErrorCode::kMismatch, "share a byte"));
  }
}

TEST(Recipe, ACastChangesNoShapeAndComesLast) {
  EXPECT_EQ(*apply_recipe({kCast}, Shape{2, 3, 4}), (Shape{2, 3, 4}));
  EXPECT_EQ(*apply_recipe({kTranspose, kCast}, Shape{2, 3}), (Shape{3, 2}));
  for (const Recipe& recipe : {Recipe{kCast, kTranspose}, Recipe{kCast, kCast}}) {
    EXPECT_THAT(apply_recipe(recipe, Shape{2, 3}),
                FailsWith(ErrorCode::kInvalidArgument, "a cast must be the last step"));
  }
}

TEST(Recipe, NumbersThatSuitNoTensorAreRefused) {
  const Shape deep(kMaxRecipeRank + 1, 1);
  for (const RecipeStep& step :
       {RecipeStep{StepKind::kSlice, {0, 1}}, RecipeStep::reshape({-1, -1}),
        RecipeStep::reshape({-2}), RecipeStep::reshape(deep), RecipeStep::permute(deep),
        RecipeStep{StepKind::kTranspose, {1}}, RecipeStep{StepKind::kCast, {1}}}) {
    EXPECT_THAT(apply_recipe({step}, Shape{2, 3}),
                FailsWith(ErrorCode::kInvalidArgument, std::string(step_name(step.kind))));
  }
}

TEST(Recipe, ACastIsNotCountedAmongTheSteps) {
  Recipe recipe(kMaxRecipeSteps, kTranspose);
  EXPECT_THAT(apply_recipe(with_cast(recipe, true), contiguous({2, 3})), IsOk());
  recipe.push_back(kTranspose);
  EXPECT_THAT(apply_recipe(recipe, contiguous({2, 3})),
              FailsWith(ErrorCode::kInvalidArgument, "more than 8 steps"));
}

TEST(Recipe, CutsNoTensorIntoMoreDimensionsThanTorchHas) {
  Shape halves(kMaxRecipeRank / 2, 2);
  Recipe recipe{RecipeStep::reshape(halves), RecipeStep::permute({})};
  for (std::int64_t d = kMaxRecipeRank / 2; d-- > 0;) {
    recipe.back().numbers.push_back(d);
  }
  Shape ones(kMaxRecipeRank - 1, 1);  // joined to one dimension, and as many of size 1 around it
  ones.push_back(-1);
  recipe.push_back(RecipeStep::reshape(ones));
  EXPECT_THAT(apply_recipe(recipe, contiguous({std::int64_t{1} << (kMaxRecipeRank / 2)})),
              FailsWith(ErrorCode::kMismatch, "too many dimensions"));
}

TEST(Recipe, TurningOnceMoreLeavesTheCastAtTheEnd) {
  EXPECT_EQ(turned_once_more({}), Recipe{kTranspose});
  EXPECT_EQ(turned_once_more({kCast}), (Recipe{kTranspose, kCast}));
}

TEST(Recipe, ACastIsAddedOnceAndTakenAway) {
  EXPECT_EQ(with_cast({kTranspose}, true), (Recipe{kTranspose, kCast}));
  EXPECT_EQ(with_cast({kCast}, true), Recipe{kCast});
  EXPECT_EQ(with_cast({kTranspose, kCast}, false), Recipe{kTranspose});
  EXPECT_EQ(with_cast({}, false), Recipe{});
}

}  // namespace
}  // namespace onnx_external
