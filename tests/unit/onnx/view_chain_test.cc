#include "onnx/view_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "onnx_external/recipe.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ViewChain, TwoTransposesLeaveNothing) {
  ViewChain chain({3, 5});
  EXPECT_TRUE(chain.apply(RecipeStep::transpose()));
  EXPECT_THAT(chain.shape(), ElementsAre(5, 3));
  EXPECT_THAT(chain.recipe(), ElementsAre(RecipeStep::transpose()));
  EXPECT_TRUE(chain.permute({}));
  EXPECT_THAT(chain.recipe(), IsEmpty());
}

TEST(ViewChain, AnExpertIsASliceWithoutItsAxis) {
  ViewChain chain({4, 48, 128});
  EXPECT_TRUE(chain.permute(std::vector<std::int64_t>{0, 2, 1}));
  EXPECT_TRUE(chain.slice(0, 2, 3));
  EXPECT_TRUE(chain.squeeze(0));
  EXPECT_TRUE(chain.permute({}));
  EXPECT_THAT(chain.recipe(),
              ElementsAre(RecipeStep::slice(0, 2, 3), RecipeStep::reshape({48, 128})));
}

TEST(ViewChain, SlicesOfSlicesAreOneSlice) {
  ViewChain chain({10, 4});
  EXPECT_TRUE(chain.slice(0, 2, 9));
  EXPECT_TRUE(chain.slice(0, 1, 3));
  EXPECT_THAT(chain.recipe(), ElementsAre(RecipeStep::slice(0, 3, 5)));
}

TEST(ViewChain, AReshapeThatOnlyInsertsAxesIsUndone) {
  ViewChain chain({6, 4});
  EXPECT_TRUE(chain.reshape({1, 6, 1, 4}));
  EXPECT_TRUE(chain.squeeze(0));
  EXPECT_TRUE(chain.unsqueeze(3));
  EXPECT_TRUE(chain.reshape({6, 4}));
  EXPECT_THAT(chain.recipe(), IsEmpty());
}

TEST(ViewChain, AReshapeThatJoinsAxesStays) {
  ViewChain chain({8, 2, 3});
  EXPECT_TRUE(chain.apply(RecipeStep::reshape({8, -1})));
  EXPECT_TRUE(chain.permute({}));
  EXPECT_THAT(chain.recipe(), ElementsAre(RecipeStep::reshape({8, 6}), RecipeStep::transpose()));
  EXPECT_THAT(chain.shape(), ElementsAre(6, 8));
}

TEST(ViewChain, ARecipeGivesTheShapeOfTheChain) {
  ViewChain chain({2, 1, 6, 4});
  EXPECT_TRUE(chain.slice(0, 1, 2));
  EXPECT_TRUE(chain.permute(std::vector<std::int64_t>{3, 0, 1, 2}));
  EXPECT_TRUE(chain.squeeze(1));
  EXPECT_TRUE(chain.unsqueeze(0));
  const auto made = apply_recipe(chain.recipe(), Shape{2, 1, 6, 4});
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, chain.shape());
}

TEST(ViewChain, RefusesStepsThatDoNotFit) {
  ViewChain chain({3, 5});
  EXPECT_FALSE(chain.permute(std::vector<std::int64_t>{0, 0}));
  EXPECT_FALSE(chain.permute(std::vector<std::int64_t>{0, 2}));
  EXPECT_FALSE(chain.permute(std::vector<std::int64_t>{-1, 0}));
  EXPECT_FALSE(chain.slice(0, 2, 4));
  EXPECT_FALSE(chain.slice(0, 2, 2));
  EXPECT_FALSE(chain.slice(2, 0, 1));
  EXPECT_FALSE(chain.squeeze(0));
  EXPECT_FALSE(chain.unsqueeze(3));
  EXPECT_FALSE(chain.apply(RecipeStep::reshape({4, -1})));
  EXPECT_FALSE(chain.apply(RecipeStep::slice(5, 0, 1)));
}

}  // namespace
}  // namespace onnx_external
