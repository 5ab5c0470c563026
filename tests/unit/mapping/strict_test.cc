// What is taken and what is refused so that a save is complete: docs/mapping.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/graph_facts.h"
#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(StrictMapping, AnUnusedModuleIsOneLineInTheReport) {
  MappingCase c;
  c.open("encoder.fc.weight");
  c.key("encoder.fc.weight");
  c.key("decoder.fc.weight");
  c.key("decoder.norm.bias", {3});
  EXPECT_EQ(c.map()->unused_modules, (std::vector<UnusedModule>{{"decoder", 2}}));
  c.graph.constants = {{"Constant_3", kFloatType, {3}}};
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"Constant_3"}));
  c.options.keep = {"Constant_3"};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, AKeyOfAUsedModuleIsRefused) {
  MappingCase c;
  c.open("fc.weight");
  c.key("fc.weight");
  c.key("fc.bias", {2});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'fc.bias'"));
  c.options.unmatched = Unmatched::kSkip;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, AModuleThatHasNodesIsUsed) {
  MappingCase c;
  c.open("wte.weight");
  c.key("model.wte.weight");
  c.key("model.lm_head.weight", {3, 3});
  EXPECT_THAT(c.map(), IsOk());
  c.graph.modules = {"lm_head", "wte"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'model.lm_head.weight'"));
}

TEST(StrictMapping, AModuleWithNodesIsUsedUnderAnyNameInTheCheckpoint) {
  MappingCase c;
  c.open("body.wte.weight");
  c.key("trunk.wte.weight");
  c.key("trunk.lm_head.weight", {3, 3});
  c.options.renames = {{"^trunk", "body", false}};
  EXPECT_THAT(c.map(), IsOk());
  c.graph.modules = {"body.lm_head", "body.wte"};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'trunk.lm_head.weight'"));
}

TEST(StrictMapping, ABatchNormWithoutAPlaceWasFolded) {
  MappingCase c;
  c.open("conv.weight");
  c.key("conv.weight");
  for (const char* name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}) {
    c.key(name, {2});
  }
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "BatchNorm"));
}

TEST(StrictMapping, AnAdapterIsReportedAsOne) {
  MappingCase c;
  c.open("q.weight");
  c.key("q.weight");
  c.key("q.lora_A.weight", {2, 1});
  c.key("q.lora_B.default.weight", {1, 2});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kAdapter));
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "merge the adapter first"));
  const auto refused = c.map();
  const Remedy& remedy = refused.error().details->remedies.front();
  EXPECT_EQ(remedy.option, RemedyOption::kIgnore);
  EXPECT_EQ(remedy.value, "lora_A|lora_B");
  c.options.ignore = {remedy.value};
  ASSERT_THAT(c.map(), IsOk());
  EXPECT_THAT(c.map()->keys_with({KeyVerdict::kIgnored}), ElementsAre(1, 2));
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, ACounterInsideAnAdapterIsNotAWeightOfIt) {
  MappingCase c;
  c.open("lora_A.weight");
  c.key("lora_A.weight");
  c.key("lora_A.num_batches_tracked", {}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, BakedBuffersAndCountersAreNotWeights) {
  MappingCase c;
  c.open("attn.q.weight");
  c.key("attn.q.weight");
  c.key("attn.inv_freq", {8});
  c.key("attn.bias", {1, 1, 8, 8});
  c.key("num_updates", {}).dtype = DType::kInt64;
  c.key("embeddings.position_ids", {1, 8}).dtype = DType::kInt64;
  ASSERT_THAT(c.map(), IsOk());
  EXPECT_THAT(c.map()->keys_with({KeyVerdict::kBaked}), ElementsAre(1, 2, 4));
  EXPECT_THAT(c.map()->keys_with({KeyVerdict::kNonWeight}), ElementsAre(3));
  c.key("permutation", {8}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'permutation'"));
}

TEST(StrictMapping, KeysBesideARemovedPrefixAreSomethingElse) {
  MappingCase c;
  c.open("fc.weight");
  c.key("model.fc.weight");
  c.key("ema_decay", {2});
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, AKeyUnderTheNameOfAnUnusedModuleIsMarked) {
  MappingCase c;
  c.open("body.weight");
  c.key("body.weight");
  c.key("head.weight", {3, 3});
  c.key("head.steps", {}).dtype = DType::kInt64;
  c.key("header", {}).dtype = DType::kInt64;
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(
      mapping->keys,
      ElementsAre(MappedKey{KeyVerdict::kUsed}, MappedKey{KeyVerdict::kUnusedModule, true},
                  MappedKey{KeyVerdict::kNonWeight, true}, MappedKey{KeyVerdict::kNonWeight}));
}

TEST(StrictMapping, KeysOutsideThePrefixAreNeitherIgnoredNorUnused) {
  MappingCase c;
  c.open("weight");
  c.key("body.weight");
  c.key("head.weight", {3, 3});
  c.options.prefix = "body";
  c.options.ignore = {"head"};
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  EXPECT_EQ(mapping->keys[1].verdict, KeyVerdict::kOutsidePrefix);
}

TEST(StrictMapping, ACloneOfAUsedKeyIsATie) {
  MappingCase c;
  c.open("wte.weight");
  c.key("wte.weight");
  c.key("wte.copy");
  MappingEvidence evidence;
  evidence.same_bytes = [](std::uint32_t, std::uint32_t) { return Result<bool>(true); };
  EXPECT_FALSE(map_tensors(c.graph, c.keys, {}, evidence).has_value());  // zeros, perhaps
  evidence.key_is_uniform = [](std::uint32_t) { return Result<bool>(false); };
  const auto mapping = map_tensors(c.graph, c.keys, {}, evidence);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(mapping->keys_with({KeyVerdict::kTied}), ElementsAre(1));
}

TEST(StrictMapping, EqualNumbersOfAModuleThatIsTiedAreTied) {
  MappingCase c;
  c.open("proj.fc.weight");
  c.open("proj.gate", {});
  for (const char* module : {"proj", "norm"}) {
    c.key(std::string(module) + ".fc.weight");
    c.key(std::string(module) + ".gate", {});
  }
  MappingEvidence evidence;
  evidence.same_bytes = [](std::uint32_t, std::uint32_t) { return Result<bool>(true); };
  evidence.key_is_uniform = [&](std::uint32_t key) {
    return Result<bool>(c.keys.keys[key].shape.empty());
  };
  const auto mapping = map_tensors(c.graph, c.keys, {}, evidence);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(mapping->keys_with({KeyVerdict::kTied}), ElementsAre(2, 3));
  EXPECT_EQ(mapping->keys[3].tied_to, 1U);
  c.keys.keys[2].name = "norm.fc.other";  // not the same weight of two modules
  EXPECT_THAT(map_tensors(c.graph, c.keys, {}, evidence),
              FailsWith(ErrorCode::kNotFound, "'norm.gate'"));
}

TEST(StrictMapping, AWeightThatAnotherModuleUsesGetsThatModulesKey) {
  MappingCase c;
  c.graph.modules = {"body.fc", "head"};
  c.open("norm.fc.weight").used_in = {0};
  c.open("norm.fc.bias", {2}).used_in = {0, 1};
  c.key("model.norm.fc.weight");
  c.key("model.body.fc.bias", {2});
  EXPECT_THAT(c.pairs(), ElementsAre("norm.fc.weight<-model.norm.fc.weight (prefix-removed)",
                                     "norm.fc.bias<-model.body.fc.bias (graph-tie)"));
  c.keys.keys[1].shape = {3};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'norm.fc.bias'"));
  c.keys.keys[1] = {"model.third.fc.bias", DType::kFloat32, {2}, 0, std::nullopt};
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'norm.fc.bias'"));
}

TEST(StrictMapping, DataThatEqualsAKeyIsKept) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::MatMul_8", SlotKind::kInitializer, SymbolicShape{2, 3});
  c.key("fc.weight");
  c.key("head.weight", {3, 2});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'onnx::MatMul_8'"));
  MappingEvidence evidence;
  evidence.slot_holds = [](std::uint32_t slot, std::uint32_t key, const Recipe& recipe) {
    return Result<bool>(slot == 1 && key == 1 && !recipe.empty());
  };
  const auto mapping = map_tensors(c.graph, c.keys, {}, evidence);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(c.names_with(*mapping, SlotVerdict::kKept), ElementsAre("onnx::MatMul_8"));
  EXPECT_THAT(mapping->keys_with({KeyVerdict::kBaked}), ElementsAre(1));
}

TEST(StrictMapping, AFoldedTransposeGetsItsKeyTransposed) {
  MappingCase c;
  Slot& marked = c.slot("emb.weight", SlotKind::kInitializer, SymbolicShape{4, 2});
  marked.origin = SlotOrigin::kParameter;
  Slot& tied = c.slot("val_3", SlotKind::kInitializer, SymbolicShape{2, 4});
  tied.folded_from = {"emb.weight"};
  Slot& folded = c.slot("val_4", SlotKind::kInitializer, SymbolicShape{2, 3});
  folded.folded_from = {"fc.weight"};
  c.key("model.emb.weight", {4, 2});
  c.key("model.fc.weight", {3, 2});
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  ASSERT_EQ(mapping->pairs.size(), 3U);
  EXPECT_THAT(mapping->pairs[0].recipe, IsEmpty());
  EXPECT_THAT(mapping->pairs[1].recipe, ElementsAre(RecipeStep::transpose()));
  EXPECT_THAT(mapping->pairs[2].recipe, ElementsAre(RecipeStep::transpose()));
  EXPECT_EQ(mapping->pairs[1].key, 0U);
}

TEST(StrictMapping, ASmallSquareOrAnotherOperatorNeedsBytes) {
  for (const SymbolicShape& shape : {SymbolicShape{3, 3}, SymbolicShape{3, 2}}) {
    MappingCase c;
    Slot& folded = c.slot("val_4", SlotKind::kInitializer, shape);
    folded.folded_from = {"fc.weight"};
    if (shape[1] == 2) {
      folded.folded_from.emplace_back("val_1");
    }
    c.slot("b", SlotKind::kInitializer, SymbolicShape{3}).origin = SlotOrigin::kParameter;
    c.key("fc.weight", {*shape[1], *shape[0]});
    c.key("b", {3});
    EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"val_4"}));
  }
}

TEST(StrictMapping, ASmallSquareThatIsStatedToBeTransposedIs) {
  MappingCase c;
  Slot& folded = c.slot("fc.weight.transposed", SlotKind::kInitializer, SymbolicShape{3, 3});
  folded.origin = SlotOrigin::kParameter;
  folded.folded_from = {"fc.weight"};
  folded.transposed = true;
  c.key("fc.weight", {3, 3});
  const auto mapping = c.map();
  ASSERT_THAT(mapping, IsOk());
  EXPECT_THAT(mapping->pairs[0].recipe, ElementsAre(RecipeStep::transpose()));
  folded.folded_from.emplace_back("other");  // of two values no transpose is made
  EXPECT_FALSE(c.map().has_value());
}

TEST(StrictMapping, AMissingWeightThatIsStatedToBeTransposedIsNotTakenForAnInventedName) {
  MappingCase c;
  Slot& folded = c.slot("fc.weight.transposed", SlotKind::kInitializer, SymbolicShape{3, 4});
  folded.has_data = false;
  folded.origin = SlotOrigin::kParameter;
  folded.folded_from = {"fc.weight"};
  folded.transposed = true;
  c.key("other", {7});
  const auto mapping = c.map();
  ASSERT_FALSE(mapping.has_value());
  EXPECT_THAT(error_text(mapping.error()),
              AllOf(HasSubstr("fc.weight.transposed"), Not(HasSubstr("exporters generate"))));
}

TEST(StrictMapping, ALargeSquareThatOnlyMatMulReadsIsTransposed) {
  MappingCase c;
  Slot& folded = c.slot("val_4", SlotKind::kInitializer, SymbolicShape{128, 128});
  folded.folded_from = {"fc.weight"};
  folded.matmul_second_count = 1;
  c.key("fc.weight", {128, 128});
  ASSERT_THAT(c.map(), IsOk());
  EXPECT_THAT(c.map()->pairs[0].recipe, ElementsAre(RecipeStep::transpose()));
  c.graph.slots[0].matmul_second_count = 0;
  EXPECT_FALSE(c.map().has_value());
}

// A graph of torch's newer exporter: a weight, and a value that was folded from `sources`.
MappingCase with_folded_value(const std::vector<std::string>& sources) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2}).origin = SlotOrigin::kParameter;
  c.slot("val_9", SlotKind::kInitializer, SymbolicShape{1, 7, 4}).folded_from = sources;
  c.graph.defined_names = {"embedding"};
  c.key("fc.weight");
  return c;
}

TEST(StrictMapping, AValueThatWasFoldedFromNoWeightStays) {
  const std::vector<std::vector<std::string>> lists = {
      {"val_1", "val_2"},
      {"_to_copy", "arange_1", "cat_12", "convert_element_type_default_3", "cos", "unsqueeze_1"},
      {"mul_1", "rotary.inv_freq", "rotary.sliding_attention_inv_freq", "val_0"},
      {"layers.0.attn.lifted_tensor_0", "bitwise_and", "val_3"},
      {"embedding", "val_3"}};
  for (const std::vector<std::string>& sources : lists) {
    EXPECT_THAT(with_folded_value(sources).names_with(SlotVerdict::kKept), ElementsAre("val_9"));
  }
}

TEST(StrictMapping, AValueThatMayBeFoldedFromAWeightIsRefused) {
  for (const std::string source : {"fc.weight", "fc.bias", "cls_token", "scale", "mean", "add_x"}) {
    MappingCase c = with_folded_value({"arange", source, "val_3"});
    EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"val_9"}))
        << source;
  }
}

TEST(StrictMapping, AKeyIsAWeightEvenIfItsNameIsThatOfAnOperation) {
  MappingCase c = with_folded_value({"index", "val_3"});
  EXPECT_THAT(c.map(), IsOk());
  c.graph.slots[0].name = "fc.weight";
  c.key("index", {28});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"val_9"}));
  c.keys.keys.clear();  // the same below a prefix
  c.key("model.fc.weight");
  c.key("model.index", {28});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"val_9"}));
}

TEST(StrictMapping, AParameterThatOnlyMaskedTrainingUsesIsLeftOut) {
  MappingCase c;
  c.open("embeddings.cls_token");
  c.key("embeddings.cls_token");
  c.key("embeddings.mask_token");
  c.key("embeddings.masked_spec_embed", {4});
  EXPECT_THAT(c.pairs(), ElementsAre("embeddings.cls_token<-embeddings.cls_token (exact)"));
  c.key("embeddings.mask", {4});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused, {"embeddings.mask"}));
}

TEST(StrictMapping, ATiedOutputLayerHasTheBiasOfTheModuleAroundIt) {
  MappingCase c;
  Slot& shared = c.open("cls.decoder.weight", {9, 2});
  shared.is_gathered = shared.is_multiplied = true;
  c.open("cls.decoder.bias", {9});
  c.key("bert.word_embeddings.weight", {9, 2});
  c.key("cls.bias", {9});
  EXPECT_THAT(c.pairs(), ElementsAre("cls.decoder.weight<-bert.word_embeddings.weight (graph-tie)",
                                     "cls.decoder.bias<-cls.bias (graph-tie)"));
  c.keys.keys[0].name = "cls.decoder.weight";  // a weight of its own, so a bias of its own
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing));
}

TEST(StrictMapping, AFusedBatchNormIsRefusedWhateverIsAllowed) {
  MappingCase c;
  c.slot("conv.weight", SlotKind::kInitializer, SymbolicShape{2, 2}).batch_norm_fused = true;
  c.open("fc.weight");
  c.key("conv.weight");
  c.key("fc.weight");
  c.options.partial = Partial::kAllow;
  c.options.unmatched = Unmatched::kSkip;
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kMismatch, ErrorKind::kFused));
}

// A weight of ones was merged with a variance of ones, which the checkpoint lacks.
TEST(StrictMapping, AWeightThatIsAlsoTheVarianceIsRefusedUnlessTheCheckpointTiesThem) {
  MappingCase c;
  Slot& slot = c.slot("weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  slot.scale_and_statistic = true;
  slot.consumer_count = 2;
  c.key("weight");
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kAmbiguous, ErrorKind::kMerged));
  c.key("running_var");
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kMerged));
  MappingEvidence evidence;
  evidence.same_bytes = [](std::uint32_t, std::uint32_t) { return Result<bool>(true); };
  EXPECT_THAT(map_tensors(c.graph, c.keys, c.options, evidence), IsOk());
}

TEST(StrictMapping, LocalBuffersAndConstantsAreNeverFilledByName) {
  MappingCase c;
  c.slot("w", SlotKind::kInitializer, SymbolicShape{2, 2}).origin = SlotOrigin::kParameter;
  c.slot("mask", SlotKind::kInitializer, SymbolicShape{2, 2}).origin = SlotOrigin::kLocalBuffer;
  c.slot("tab", SlotKind::kInitializer, SymbolicShape{2, 2}).origin = SlotOrigin::kConstant;
  c.key("w");
  EXPECT_THAT(c.names_with(SlotVerdict::kKept), ElementsAre("mask", "tab"));
  c.graph.slots[2].has_data = false;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'tab'"));
  c.options.map = {{"tab", "w"}};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, TheOtherEndOfATiedEmbeddingFillsIt) {
  MappingCase c;
  Slot& embedding = c.open("wte.weight");
  embedding.consumer_count = 2;
  embedding.is_gathered = true;
  embedding.is_multiplied = true;
  c.open("fc.bias", {2});
  c.key("lm_head.weight");
  c.key("fc.bias", {2});
  EXPECT_THAT(c.pairs(),
              ElementsAre("wte.weight<-lm_head.weight (graph-tie)", "fc.bias<-fc.bias (exact)"));
  c.key("other.weight");
  EXPECT_FALSE(c.map().has_value());
}

TEST(StrictMapping, ANumberAfterATakenNameWasAddedByTorch) {
  MappingCase c;
  c.input("mask", {std::nullopt});
  c.slot("mask.1", SlotKind::kInitializer, SymbolicShape{2});
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.key("mask", {2});
  c.key("fc.weight");
  EXPECT_THAT(c.pairs(), ElementsAre("mask.1<-mask (renamed)", "fc.weight<-fc.weight (exact)"));
}

TEST(StrictMapping, AKeyThatFillsTheCallersInputBesideWeightsMustBeConfirmed) {
  MappingCase c;
  c.input("mask", {2});
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.key("mask", {2});
  c.key("fc.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "'mask'"));
}

TEST(StrictMapping, ASubmodulesKeysThatFitTwoSubmodulesAreAmbiguous) {
  MappingCase c;
  for (const char* name : {"q.w.weight", "k.w.weight"}) {
    c.slot(name, SlotKind::kInitializer, SymbolicShape{2, 2});
  }
  c.key("w.weight");
  c.options.partial = Partial::kAllow;
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "more than one way"));
}

TEST(StrictMapping, BatchNormsUnderOneParentWereFoldedAsWell) {
  MappingCase c;
  c.open("convs.0.weight");
  c.key("convs.0.weight");
  for (const char* name : {"norms.0.weight", "norms.0.running_var", "norms.1.bn.running_mean"}) {
    c.key(name, {2});
  }
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'norms.0.weight'"));
}

TEST(StrictMapping, AModuleInsideALayerIsNotAnUnusedModule) {
  MappingCase c;
  c.open("a.weight");
  c.key("a.weight");
  c.key("a.delta.down", {2, 1});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kNotFound, "'a.delta.down'"));
}

TEST(StrictMapping, ComputedIntegersStayOnlyIfTheyAreAShape) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  Slot& computed = c.slot("onnx::Gather_4", SlotKind::kInitializer, SymbolicShape{4});
  computed.elem_type = onnx_data_type(DType::kInt64);
  computed.consumer_op = "Gather";
  c.slot("perm", SlotKind::kInitializer, SymbolicShape{8}).elem_type =
      onnx_data_type(DType::kInt64);
  c.key("fc.weight");
  c.key("perm", {8}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"onnx::Gather_4"}));
  c.graph.slots[1].consumer_op = "Reshape";
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, ANumberMayBeComputedFromAnInteger) {
  MappingCase c;
  c.slot("fc.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("onnx::Mul_7", SlotKind::kInitializer, SymbolicShape{});
  c.key("fc.weight");
  c.key("bn.num_batches_tracked", {}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), IsOk());
  c.key("shift", {}).dtype = DType::kInt64;
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kStale, {"onnx::Mul_7"}));
}

TEST(StrictMapping, LayersThatAreEqualBeforeTrainingAreNotTied) {
  MappingCase c;
  c.slot("layers.0.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.slot("layers.1.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
  c.key("layers.0.weight");
  MappingEvidence evidence;
  evidence.same_data = [](std::uint32_t, std::uint32_t) { return Result<bool>(true); };
  evidence.slot_is_uniform = [](std::uint32_t) { return Result<bool>(false); };
  EXPECT_FALSE(map_tensors(c.graph, c.keys, {}, evidence).has_value());
  c.graph.slots[0].is_gathered = true;
  c.graph.slots[1].is_multiplied = true;
  EXPECT_TRUE(map_tensors(c.graph, c.keys, {}, evidence).has_value());
}

TEST(StrictMapping, TwoKeysOfOneChangedNameAreAmbiguous) {
  MappingCase c;
  c.open("a.weight");
  c.key("a.weight");
  c.key("_orig_mod.a.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "both become 'a.weight'"));
  c.keys.keys[0].bytes_id = c.keys.keys[1].bytes_id = 7;
  EXPECT_THAT(c.map(), IsOk());
}

TEST(StrictMapping, AFixedVectorBesideADynamicInputMayBeABuffer) {
  MappingCase c;
  c.input("x", {std::nullopt, 4});
  c.input("perm", {4}).elem_type = onnx_data_type(DType::kInt64);
  c.input("fc.weight");
  c.key("fc.weight");
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kAmbiguous, "'perm'"));
  c.options.inputs = {"x"};
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kMissing, {"perm"}));
}

TEST(StrictMapping, AWeightThatWasMergedWithAConstantIsSeen) {
  MappingCase c;
  Slot& merged = c.slot("t", SlotKind::kInitializer, SymbolicShape{});
  merged.parameter_uses = 1;
  merged.other_uses = 1;  // x * 2.0
  c.key("t", {});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kAmbiguous, ErrorKind::kMergedConstant));
  c.graph.slots[0].never_merged = true;
  EXPECT_THAT(c.map(), IsOk());
  c.graph.slots[0].never_merged = false;
  c.graph.slots[0].other_uses = 0;
  EXPECT_THAT(c.map(), IsOk());
}

}  // namespace
}  // namespace onnx_external
