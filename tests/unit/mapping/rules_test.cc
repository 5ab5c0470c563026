#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/graph_facts.h"
#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

TEST(MappingRules, EqualNamesAndRefinedNames) {
  MappingCase c;
  c.open("fc.weight");
  c.open("conv1_weight");
  c.key("conv1.weight");
  c.key("fc.weight");
  EXPECT_THAT(c.pairs(),
              ElementsAre("fc.weight<-fc.weight (exact)", "conv1_weight<-conv1.weight (refined)"));
}

TEST(MappingRules, ExactlyEqualBeatsRefined) {
  MappingCase c;
  c.open("a.b_c");
  c.open("a_b.c");
  c.key("a_b.c");
  c.key("a.b_c");
  EXPECT_THAT(c.pairs(), ElementsAre("a.b_c<-a.b_c (exact)", "a_b.c<-a_b.c (exact)"));
}

TEST(MappingRules, TwoKeysThatRefineAlikeAreAmbiguous) {
  MappingCase c;
  c.open("a_b_c");
  c.key("a.b_c");
  c.key("a_b.c");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "keys 'a.b_c', 'a_b.c'"));
}

TEST(MappingRules, OnePrefixIsAddedOrRemoved) {
  MappingCase removed;
  removed.open("fc.weight");
  removed.key("module.fc.weight");
  EXPECT_THAT(removed.pairs(), ElementsAre("fc.weight<-module.fc.weight (prefix-removed)"));
  EXPECT_EQ(removed.map()->key_prefix, "-module.");
  MappingCase added;
  added.open("model_fc_weight");
  added.key("fc.weight");
  EXPECT_THAT(added.pairs(), ElementsAre("model_fc_weight<-fc.weight (prefix-added)"));
  EXPECT_EQ(added.map()->key_prefix, "+model_");
}

TEST(MappingRules, AKeyUnderAnotherModuleWithAFittingNameIsNotACandidate) {
  MappingCase c;
  for (const char* name : {"fc.weight", "fc.bias", "sub.fc.weight", "sub.fc.bias"}) {
    c.open(name);
    c.key(name);
  }
  EXPECT_EQ(c.map()->pairs.size(), 4U);
}

TEST(MappingRules, TeacherAndStudentNeedAPrefix) {
  MappingCase c;
  c.open("fc.weight");
  c.key("teacher.fc.weight");
  c.key("student.fc.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "without their prefix 'student.'"));
  for (const char* prefix : {"student", "student."}) {
    c.options.prefix = prefix;
    EXPECT_THAT(c.pairs(), ElementsAre("fc.weight<-student.fc.weight (prefix-removed)"));
    EXPECT_EQ(c.map()->key_prefix, "-student.");
  }
}

TEST(MappingRules, AnEmptyPrefixKeepsTheNamesUnchanged) {
  MappingCase c;
  c.open("fc.weight");
  c.key("fc.weight");
  c.key("ema.fc.weight");
  c.key("fc.bias", {3});
  c.key("ema.fc.bias", {2});
  c.open("fc.bias", {2});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "without their prefix 'ema.'"));
  c.keys.keys[2].shape = {2};
  EXPECT_EQ(c.map()->unused_modules, (std::vector<UnusedModule>{{"ema", 2}}));
  c.options.prefix = "";
  EXPECT_THAT(c.pairs(), ElementsAre("fc.weight<-fc.weight (exact)", "fc.bias<-fc.bias (exact)"));
}

TEST(MappingRules, WrapperComponentsAreDroppedAnywhere) {
  MappingCase c;
  c.open("layers.0.w");
  c.key("_orig_mod.layers._fsdp_wrapped_module.0._checkpoint_wrapped_module.w");
  EXPECT_EQ(c.map()->pairs[0].rule, Rule::kExact);
}

TEST(MappingRules, RenamesComeBeforeEverythingElse) {
  MappingCase c;
  c.open("decoder.0.w");
  c.key("blocks.0.w");
  c.options.renames = {*parse_rename("s/^blocks/decoder/")};
  EXPECT_THAT(c.pairs(), ElementsAre("decoder.0.w<-blocks.0.w (exact)"));
  c.options.renames = {*parse_rename("s/nothing//")};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "matches no key"));
}

TEST(MappingRules, ASymbolicDimensionAgreesWithAnyOtherSizeDoesNot) {
  MappingCase c;
  c.slot("w", SlotKind::kUndefinedName, SymbolicShape{std::nullopt, 2});
  c.key("w", {7, 2});
  EXPECT_EQ(c.map()->pairs.size(), 1U);
  c.keys.keys[0].shape = {7, 3};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch,
                                 "slot 'w' is FLOAT [?, 2], but key 'w' is FLOAT [7, 3]"));
}

TEST(MappingRules, AScalarIsNotAVectorOfOne) {
  MappingCase c;
  c.open("w", {1});
  c.key("w", {});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch, "FLOAT []"));
}

TEST(MappingRules, AnotherElementTypeIsAMismatch) {
  MappingCase c;
  c.open("w");
  c.key("w").dtype = DType::kFloat16;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch, "FLOAT16 [2, 2]"));
}

TEST(MappingRules, ASuffixCountsOnlyWhenNoAlignmentFillsAnything) {
  MappingCase c;
  c.open("head_fc.weight");
  c.key("fc.weight");
  EXPECT_THAT(c.pairs(), ElementsAre("head_fc.weight<-fc.weight (suffix)"));
  c.key("other_fc.weight");
  c.open("fc.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'head_fc.weight'"));
}

TEST(MappingRules, ASuffixMustBeUniqueAndNeverReplacesData) {
  MappingCase twice;
  twice.open("head_fc.weight");
  twice.open("tail_fc.weight");
  twice.key("fc.weight");
  EXPECT_THAT(twice.map(), FailsWith(ErrorCode::kNotFound, "no key fits any slot"));
  MappingCase data;
  data.slot("head_fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  data.key("fc.weight");
  EXPECT_FALSE(data.map().has_value());
}

TEST(MappingRules, NamesThatDifferInDotsArePaired) {
  MappingCase c;
  c.open("layer.0.weight");
  c.open("fc.weight");
  c.key("layer_0.weight");
  c.key("fc.weight");
  EXPECT_THAT(c.pairs(), ElementsAre("layer.0.weight<-layer_0.weight (refined)",
                                     "fc.weight<-fc.weight (exact)"));
}

TEST(MappingRules, EqualNamesArePairedAmongSimilarOnes) {
  MappingCase c;
  for (const char* name : {"a.b", "a_b", "a.b.c", "a_b.c"}) {
    c.open(name);
    c.key(name);
  }
  EXPECT_THAT(c.pairs(), ElementsAre("a.b<-a.b (exact)", "a_b<-a_b (exact)", "a.b.c<-a.b.c (exact)",
                                     "a_b.c<-a_b.c (exact)"));
}

TEST(MappingRules, AMapMayFillSeveralSlotsFromOneKey) {
  MappingCase c;
  c.open("embed.weight");
  c.open("lm_head.weight");
  c.key("embed.weight");
  c.options.map = {{"lm_head.weight", "embed.weight"}};
  EXPECT_THAT(c.pairs(), ElementsAre("embed.weight<-embed.weight (exact)",
                                     "lm_head.weight<-embed.weight (map)"));
  c.options.map = {{"embed.weight", "embed.weihgt"}};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "did you mean 'embed.weight'"));
  c.options.map = {{"nothing", "embed.weight"}};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "no such slot"));
}

TEST(MappingRules, SafetensorsRecordOfADroppedNameFillsIt) {
  MappingCase c;
  c.open("embed.weight");
  c.open("lm_head.weight");
  c.key("model.embed.weight");
  c.keys.tied_names = {{"model.lm_head.weight", "model.embed.weight"}};
  EXPECT_THAT(c.pairs(), ElementsAre("embed.weight<-model.embed.weight (prefix-removed)",
                                     "lm_head.weight<-model.embed.weight (metadata-tie)"));
}

TEST(MappingRules, ALeftoverKeyOfTheSameBytesIsTied) {
  MappingCase c;
  c.open("embed.weight").consumer_count = 2;
  c.key("embed.weight").bytes_id = 7;
  c.key("lm_head.weight").bytes_id = 7;
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(mapping->keys_with({KeyVerdict::kTied}), ElementsAre(1));
  EXPECT_EQ(mapping->keys[1].tied_to, 0U);
}

TEST(MappingRules, InputsWithASymbolicDimensionOrNamedAreNeverSlots) {
  MappingCase c;
  c.input("x", {std::nullopt, 2});
  c.input("w");
  c.key("x", {2, 2});
  c.key("w");
  c.options.ignore = {"^x$"};
  EXPECT_THAT(c.pairs(), ElementsAre("w<-w (exact)"));
  EXPECT_THAT(c.names_with(SlotVerdict::kUserInput), ElementsAre("x"));
  c.graph.slots[0].shape = SymbolicShape{2, 2};
  EXPECT_EQ(c.map()->pairs.size(), 2U);
  c.options.inputs = {"x"};
  EXPECT_THAT(c.pairs(), ElementsAre("w<-w (exact)"));
  c.options.inputs = {"y"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "no input 'y'"));
}

// Keys "u0.a.a...", "u1.a.a...", of which each part is a slot: many times more prefixes than names.
MappingCase with_many_prefixes() {
  constexpr int kDeep = 40;
  constexpr int kKeys = 4000;
  MappingCase c;
  std::string chain = "a";
  for (int i = 0; i < kDeep; ++i, chain += ".a") {
    c.open(chain);
  }
  for (int i = 0; i < kKeys; ++i) {
    c.key("u" + std::to_string(i) + "." + chain.substr(2));
  }
  return c;
}

TEST(MappingRules, ThePrefixOfManySlotsIsFoundAmongManyOfFew) {
  MappingCase c = with_many_prefixes();
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "without their prefix 'u0.'"));
  const std::size_t slots = c.graph.slots.size();
  for (std::size_t i = 0; i < slots; ++i) {
    c.key("model." + c.graph.slots[i].name);
  }
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  EXPECT_EQ(mapping->key_prefix, "-model.");
  EXPECT_EQ(mapping->pairs.size(), slots);
}

TEST(MappingRules, AnIdentityOutputIsUsedOnlyWhenAKeyHasItsName) {
  MappingCase c;
  c.open("a.weight");
  Slot& merged = c.slot("b.weight", SlotKind::kIdentityOutput, SymbolicShape{2, 2});
  merged.merged_into = "a.weight";
  c.slot("onnx::Add_3", SlotKind::kIdentityOutput, SymbolicShape{2, 2}).merged_into = "a.weight";
  c.key("a.weight");
  c.key("b.weight");
  EXPECT_THAT(c.pairs(), ElementsAre("a.weight<-a.weight (exact)", "b.weight<-b.weight (exact)"));
}

TEST(Rules, LearnedPairsComeAfterTheMapAndBeforeNames) {
  MappingCase c;
  c.input("a");
  c.input("b");
  c.key("a");
  c.key("b");
  c.key("c");
  c.options.unmatched = Unmatched::kSkip;
  c.options.map = {{"a", "c"}};
  c.options.learned = {{"a", "b"}, {"b", "a", {RecipeStep::transpose()}}};
  EXPECT_THAT(c.pairs(), testing::ElementsAre("a<-c (map)", "b<-a (learned)"));
  EXPECT_EQ(c.map()->pairs[1].recipe, Recipe{RecipeStep::transpose()});
}

}  // namespace
}  // namespace onnx_external
