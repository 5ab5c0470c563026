#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

constexpr const char* kOldG = "conv.weight_g";
constexpr const char* kOldV = "conv.weight_v";
constexpr const char* kNewG = "conv.parametrizations.weight.original0";
constexpr const char* kNewV = "conv.parametrizations.weight.original1";

TEST(WeightNormNames, OldKeysFillSlotsOfTheParametrization) {
  MappingCase c;
  c.open(kNewG, {2, 1});
  c.open(kNewV);
  c.key(kOldG, {2, 1});
  c.key(kOldV);
  EXPECT_THAT(c.pairs(),
              ElementsAre("conv.parametrizations.weight.original0<-conv.weight_g (exact)",
                          "conv.parametrizations.weight.original1<-conv.weight_v "
                          "(exact)"));
}

TEST(WeightNormNames, KeysOfTheParametrizationFillOldSlots) {
  MappingCase c;
  c.open(kOldG, {2, 1});
  c.open(kOldV);
  c.key(kNewG, {2, 1});
  c.key(kNewV);
  EXPECT_THAT(c.pairs(),
              ElementsAre("conv.weight_g<-conv.parametrizations.weight.original0 (exact)",
                          "conv.weight_v<-conv.parametrizations.weight.original1 "
                          "(exact)"));
}

TEST(WeightNormNames, ArePrefixedAndInTheRootAsOtherNames) {
  MappingCase c;
  c.open("parametrizations.weight.original0", {2, 1});
  c.open("parametrizations.weight.original1");
  c.key("module.weight_g", {2, 1});
  c.key("module.weight_v");
  EXPECT_THAT(c.pairs(),
              ElementsAre("parametrizations.weight.original0<-module.weight_g (prefix-removed)",
                          "parametrizations.weight.original1<-module.weight_v (prefix-removed)"));
}

TEST(WeightNormNames, AGraphWithBothSpellingsTakesEachAsItIs) {
  MappingCase c;
  for (const char* name : {kNewG, "old.weight_g"}) {
    c.open(name, {2, 1});
  }
  for (const char* name : {kNewV, "old.weight_v"}) {
    c.open(name);
  }
  for (const char* name : {"net.conv.weight_g", "net.old.weight_g"}) {
    c.key(name, {2, 1});
  }
  for (const char* name : {"net.conv.weight_v", "net.old.weight_v"}) {
    c.key(name);
  }
  EXPECT_THAT(c.pairs(), ElementsAre("conv.parametrizations.weight.original0<-net.conv.weight_g "
                                     "(prefix-removed)",
                                     "old.weight_g<-net.old.weight_g (prefix-removed)",
                                     "conv.parametrizations.weight.original1<-net.conv.weight_v "
                                     "(prefix-removed)",
                                     "old.weight_v<-net.old.weight_v (prefix-removed)"));
}

TEST(WeightNormNames, AreRespelledInPairsOnlyAndNeverOverOthers) {
  MappingCase alone;
  alone.open(kNewG, {2, 1});
  alone.open(kNewV);
  alone.key(kOldG, {2, 1});
  alone.key(kNewV);
  EXPECT_THAT(alone.map(), FailsWith(ErrorCode::kNotFound, kNewG));
  MappingCase both;
  both.open(kNewG, {2, 1});
  both.open(kNewV);
  for (const char* name : {kOldG, kNewG}) {
    both.key(name, {2, 1});
  }
  for (const char* name : {kOldV, kNewV}) {
    both.key(name);
  }
  EXPECT_THAT(both.map(), FailsListing(ErrorCode::kNotFound, ErrorKind::kUnused));
}

TEST(WeightNormNames, OfAnotherShapeDoNotFit) {
  MappingCase c;
  c.open(kNewG, {2, 1});
  c.open(kNewV);
  c.key(kOldG, {1, 2});
  c.key(kOldV);
  EXPECT_THAT(c.map(), FailsWith(ErrorCode::kMismatch, "key 'conv.weight_g' is FLOAT [1, 2]"));
}

}  // namespace
}  // namespace onnx_external
