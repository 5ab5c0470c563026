#include "onnx_external/recipe.h"

#include <gtest/gtest.h>

#include "support/result_matchers.h"

namespace onnx_external {
namespace {

constexpr RecipeStep kTranspose = RecipeStep::kTranspose;
constexpr RecipeStep kCast = RecipeStep::kCast;

TEST(Recipe, EveryStepIsFoundByItsName) {
  for (const RecipeStep step : {kTranspose, kCast}) {
    EXPECT_EQ(recipe_step_called(recipe_step_name(step)), step);
  }
  EXPECT_EQ(recipe_step_called("fold"), std::nullopt);
  EXPECT_EQ(recipe_text({kTranspose, kCast}), "transpose, cast");
}

TEST(Recipe, ATransposeSwapsTheDimensionsOfAMatrixAlone) {
  EXPECT_EQ(*apply_recipe({kTranspose}, Shape{2, 3}), (Shape{3, 2}));
  EXPECT_EQ(*apply_recipe({kTranspose, kTranspose}, Shape{2, 3}), (Shape{2, 3}));
  EXPECT_THAT(apply_recipe({kTranspose}, Shape{2, 3, 4}),
              FailsWith(ErrorCode::kMismatch, "only a matrix can be transposed"));
}

TEST(Recipe, ACastChangesNoShapeAndComesLast) {
  EXPECT_EQ(*apply_recipe({kCast}, Shape{2, 3, 4}), (Shape{2, 3, 4}));
  EXPECT_EQ(*apply_recipe({kTranspose, kCast}, Shape{2, 3}), (Shape{3, 2}));
  for (const Recipe& recipe : {Recipe{kCast, kTranspose}, Recipe{kCast, kCast}}) {
    EXPECT_THAT(apply_recipe(recipe, Shape{2, 3}),
                FailsWith(ErrorCode::kInvalidArgument, "a cast is the last step"));
  }
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
