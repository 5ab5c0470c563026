#include "mapping/name_refinement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

TEST(NameRefinement, DotsBecomeUnderscores) {
  EXPECT_EQ(refine("a.b_c/d"), "a_b_c/d");
}

TEST(NameRefinement, WrappersAreDroppedAsWholeComponents) {
  EXPECT_EQ(drop_wrappers("_orig_mod.a._fsdp_wrapped_module.b"), "a.b");
  EXPECT_EQ(drop_wrappers("my_orig_mod.a"), "my_orig_mod.a");
  EXPECT_EQ(drop_wrappers("a._orig_mod"), "a");
  EXPECT_EQ(drop_wrappers("_orig_mod"), "_orig_mod");
  EXPECT_EQ(drop_wrappers("a..b"), "a..b");
  EXPECT_EQ(drop_wrappers(".a"), ".a");
  EXPECT_EQ(drop_wrappers(""), "");
}

TEST(NameRefinement, UnderscoresSeparateOnlyInNamesWithoutDots) {
  EXPECT_THAT(boundaries("a_b.c/d"), ElementsAre(4, 6));
  EXPECT_THAT(boundaries("a_b_c"), ElementsAre(2, 4));
  EXPECT_THAT(refined_boundaries("a_b/c"), ElementsAre(2, 4));
  EXPECT_THAT(boundaries("a."), ElementsAre());
}

TEST(NameRefinement, AHostileNameHasFewBoundaries) {
  std::string name(100'001, '.');
  name.back() = 'x';
  EXPECT_EQ(boundaries(name).size(), kMaxBoundaries);
}

TEST(NameRefinement, KnowsTheNamesOfParameters) {
  EXPECT_TRUE(is_parameter_name("conv1.weight"));
  EXPECT_TRUE(is_parameter_name("bn1_running_var"));
  EXPECT_TRUE(is_parameter_name("weight"));
  EXPECT_FALSE(is_parameter_name("lightweight"));
  EXPECT_FALSE(is_parameter_name("input.1"));
}

}  // namespace
}  // namespace onnx_external
