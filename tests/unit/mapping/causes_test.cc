#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// "--option value" of each remedy of a mapping that is refused.
std::vector<std::string> remedies_of(const Result<Mapping>& refused) {
  std::vector<std::string> texts;
  for (const Remedy& remedy : refused.error().details->remedies) {
    texts.push_back(std::string(option_name(remedy.option)) + " " + remedy.value);
  }
  return texts;
}

TEST(MappingCauses, EmptyTensorsAreOfOneRankOfZero) {
  MappingCase c;
  c.open("a.weight");
  c.open("a.bias", {2});
  c.key("a.weight", {0});
  c.key("a.bias", {0});
  EXPECT_THAT(c.map(),
              FailsWith(ErrorCode::kMismatch,
                        "2 tensors of the checkpoint are empty ('a.weight' is FLOAT [0]), as in "
                        "the file that one rank of DeepSpeed ZeRO stage 3 saves; join"));
  EXPECT_THAT(c.map().error().message, Not(HasSubstr("that belongs to this graph")));
}

TEST(MappingCauses, FlatAndOptimizerTensorsAreNamed) {
  const std::vector<std::pair<const char*, const char*>> rows{
      {"_fsdp_wrapped_module._flat_param", "as in FSDP"},
      {"_fpw_module.flat_param_0", "as in FSDP"},
      {"optimizer_state_dict.fp32_flat_groups.0", "the optimizer state of one DeepSpeed (ZeRO)"},
      {"state.0.exp_avg", "the state of an optimizer"}};
  for (const auto& [name, words] : rows) {
    MappingCase c;
    c.open("a.weight");
    c.key(name, {100});
    const auto refused = c.map();
    ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, words)) << name;
    EXPECT_THAT(remedies_of(refused), IsEmpty());
  }
}

TEST(MappingCauses, FactorsOfAWeightAreNamedWithWhatMultipliesThem) {
  const std::vector<std::tuple<const char*, const char*, const char*>> rows{
      {"m.weight_orig", "m.weight_mask", "torch.nn.utils.prune.remove(module, 'weight')"},
      {"m.weight_orig", "m.weight_u", "remove_spectral_norm(module, 'weight')"},
      {"m.weight_g", "m.weight_v", "remove_weight_norm(module, 'weight')"},
      {"m.parametrizations.weight.original0", "m.parametrizations.weight.original1",
       "remove_parametrizations(module, 'weight')"},
      {"m.parametrizations.weight.original", "m.parametrizations.weight.0._u",
       "remove_parametrizations(module, 'weight')"}};
  for (const auto& [first, second, words] : rows) {
    for (const bool is_graph : {false, true}) {
      MappingCase c;
      c.open("other");
      c.key("other");
      if (is_graph) {
        c.open(first);
        c.open(second);
        c.key("m.weight");
      } else {
        c.open("m.weight");
        c.key(std::string("net.") + first);
        c.key(std::string("net.") + second);
      }
      const auto refused = c.map();
      ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, words)) << first;
      EXPECT_THAT(refused.error().message,
                  HasSubstr(is_graph ? "the graph has '" : "the checkpoint has '"));
      EXPECT_THAT(remedies_of(refused), IsEmpty());
    }
  }
}

TEST(MappingCauses, PartsOfTensorsAreOfRanks) {
  MappingCase c;
  c.open("a.weight", {8, 4});
  c.open("b.weight", {4, 8});
  c.open("b.bias", {4});
  c.key("a.weight", {4, 4});
  c.key("b.weight", {4, 4});
  c.key("b.bias", {4});
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch,
                                 "the keys have 1/2 of their slots' size in one dimension each, "
                                 "like the parts of a checkpoint that is split among 2 ranks"));
}

TEST(MappingCauses, AnotherHeadAndANarrowerModelAreNotParts) {
  MappingCase head;
  for (const char* name : {"a.weight", "b.weight", "c.weight"}) {
    head.open(name);
    head.key(name);
  }
  head.open("head.weight", {8, 2});
  head.open("head.bias", {8});
  head.key("head.weight", {4, 2});
  head.key("head.bias", {4});
  EXPECT_THAT(head.map(), FailsWith(ErrorCode::kMismatch, "that belongs to this graph"));
  MappingCase narrow;
  for (const char* name : {"a.weight", "b.weight"}) {
    narrow.open(name, {8, 8});
    narrow.key(name, {4, 4});
  }
  EXPECT_THAT(narrow.map(), FailsWith(ErrorCode::kMismatch, "that belongs to this graph"));
}

TEST(MappingCauses, AveragedCopiesAreToBeIgnored) {
  MappingCase c;
  for (const char* name : {"net.a.weight", "net.bn.running_mean"}) {
    c.open(name);
    c.key(name);
  }
  c.key("ema_net_a_weight");
  c.key("ema_net_bn_running_mean");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsListing(ErrorCode::kNotFound, ErrorKind::kAveraged,
                                    {"ema_net_a_weight", "ema_net_bn_running_mean"}));
  EXPECT_THAT(refused.error().message, Not(HasSubstr("BatchNorm")));
  EXPECT_THAT(remedies_of(refused), ElementsAre("ignore ^ema_"));
  c.options.ignore = {"^ema_"};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingCauses, AveragedCopiesInsideOfModulesAreAlsoFound) {
  MappingCase c;
  c.open("a.weight");
  c.key("a.weight");
  c.key("a.ema.weight");
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsListing(ErrorCode::kNotFound, ErrorKind::kAveraged));
  ASSERT_THAT(remedies_of(refused), ElementsAre("ignore (^|[._])(ema|shadow|averaged|swa)[._]"));
  c.options.ignore = {refused.error().details->remedies[0].value};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingCauses, AKeyOfAnotherShapeIsNotAnAverage) {
  MappingCase c;
  c.open("a.weight");
  c.key("a.weight");
  c.key("ema_a_weight", {3});
  EXPECT_THAT(c.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused));
}

TEST(MappingCauses, AModuleInTheMiddleOfKeysIsTakenOut) {
  MappingCase c;
  for (const char* name : {"embed.weight", "head.weight"}) {
    c.open(name);
    c.key(name);
  }
  for (const char* name : {"0.weight", "1.weight"}) {
    c.open(std::string("encoder.") + name);
    c.key(std::string("encoder.module.") + name);
  }
  const auto refused = c.map();
  ASSERT_THAT(
      refused,
      FailsWith(
          ErrorCode::kNotFound,
          "the keys have 'module' in their names, and the slots do not: key "
          "'encoder.module.0.weight' for slot 'encoder.0.weight', because torch.nn.DataParallel"));
  EXPECT_THAT(remedies_of(refused),
              ElementsAre("rename s/^encoder\\.module\\./encoder./", "map FILE"));
  c.options.renames = {{"^encoder\\.module\\.", "encoder."}};
  EXPECT_THAT(c.map(), IsOk());
}

TEST(MappingCauses, ModulesInTheMiddleOfSeveralPartsAreTakenOutAtOnce) {
  MappingCase c;
  c.open("head.weight");
  c.key("head.weight");
  for (const char* part : {"left", "right"}) {
    c.open(std::string(part) + ".weight");
    c.key(std::string(part) + ".module.weight");
  }
  EXPECT_THAT(remedies_of(c.map()), ElementsAre("rename s/\\.module\\././g", "map FILE"));
}

TEST(MappingCauses, AModuleInTheMiddleOfSlotsIsPutIntoKeys) {
  MappingCase c;
  c.open("head.weight");
  c.key("head.weight");
  for (const char* name : {"0.weight", "1.weight"}) {
    c.open(std::string("encoder.module.") + name);
    c.key(std::string("encoder.") + name);
  }
  const auto refused = c.map();
  ASSERT_THAT(refused, FailsWith(ErrorCode::kNotFound, "the slots have 'module' in their names"));
  EXPECT_THAT(remedies_of(refused),
              ElementsAre("rename s/^encoder\\./encoder.module./", "map FILE"));
}

TEST(MappingCauses, OnePairWithAnInsertedComponentProvesNothing) {
  MappingCase c;
  c.open("a.weight");
  c.key("a.weight");
  c.open("out.weight");
  c.key("out.proj.weight");
  EXPECT_THAT(c.map().error().message, Not(HasSubstr("in their names")));
}

}  // namespace
}  // namespace onnx_external
