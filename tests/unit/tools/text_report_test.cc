#include "common/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnx_external {
namespace {

TEST(VerifyText, WarnsOfWhatAnotherLoaderRefuses) {
  VerifyReport report;
  report.tensors = 3;
  const auto text = [&] { return verify_text("m", report, Compared::kNothing, Names::kFirst); };
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("warning")));
  report.remarks = {{DataRemark::kNoLength, "w", 1}};
  EXPECT_THAT(text(), testing::StartsWith("warning: 'w': external_data has no length: "));
  EXPECT_THAT(text(), testing::HasSubstr("m: 3 external tensors, 0 bytes: ok"));
  report.remarks = {{DataRemark::kZeroLength, "w", 3}};
  EXPECT_THAT(text(), testing::StartsWith("warning: 'w' and 2 more: external_data has length 0"));
}

SaveReport saved() {
  SaveReport report;
  report.models.resize(1);
  report.models[0].model = "out/m.onnx";
  report.models[0].tensors.resize(2);
  report.bytes = 32;
  report.verified = true;
  return report;
}

TEST(SaveText, AnIncompleteModelIsCalledSoInTheFirstLine) {
  SaveReport report = saved();
  const auto text = [&] { return save_text(report, RunMode::kWrite, Lists::kShort); };
  EXPECT_THAT(text(), testing::StartsWith("out/m.onnx: 2 tensors, 32 bytes in the model; "
                                          "verified, every byte\n"));
  report.models[0].left = {
      {"a", SlotVerdict::kMissing}, {"b", SlotVerdict::kMissing}, {"c", SlotVerdict::kOld}};
  report.complete = false;
  EXPECT_THAT(text(), testing::StartsWith(
                          "out/m.onnx: incomplete (--partial): 2 weights without data, 1 weight "
                          "with old values; 2 tensors, 32 bytes in the model; the rest is "
                          "verified\n"));
  EXPECT_THAT(text(), testing::Not(testing::HasSubstr("every byte")));
  EXPECT_THAT(save_text(report, RunMode::kDryRun, Lists::kShort),
              testing::StartsWith("incomplete (--partial): "));
  report.linked_bytes = 32;
  EXPECT_THAT(text(), testing::HasSubstr("; the rest is verified\n"));
  report.bytes = 0;
  EXPECT_THAT(text(), testing::HasSubstr("the ranges of the rest are verified"));
}

TEST(SaveText, WhatTheCallerDecidedIsInTheFirstLine) {
  SaveReport report = saved();
  report.models[0].kept_by_option = {"a", "b", "c"};
  report.keys = {
      {"k", KeyVerdict::kIgnored}, {"l", KeyVerdict::kUnused}, {"m", KeyVerdict::kAdapter}};
  EXPECT_THAT(save_text(report, RunMode::kWrite, Lists::kShort),
              testing::HasSubstr("verified, every byte; 3 weights kept from the graph (--keep); "
                                 "1 key ignored (--ignore); 2 keys without a slot left out\n"));
}

TEST(SaveText, ConstantsOfTheGraphAreNotCalledValuesThatTheCheckpointLacks) {
  SaveReport report = saved();
  report.models[0].left = {{"val_4", SlotVerdict::kKept},
                           {"fc.bias", SlotVerdict::kKept, true},
                           {"old", SlotVerdict::kOld}};
  report.models[0].kept_by_option = {"fc.bias"};
  const std::string text = save_text(report, RunMode::kWrite, Lists::kShort);
  EXPECT_THAT(text, testing::HasSubstr(
                        "\nconstants of the graph, for which checkpoints have no keys: val_4\n"));
  EXPECT_THAT(text, testing::HasSubstr("\nfrom the graph, not from the checkpoint: fc.bias\n"));
}

TEST(SaveText, EachKeyWithoutASlotIsInOneLine) {
  SaveReport report = saved();
  report.unused_modules = {{"head", 1}};
  report.keys = {{"body.steps", KeyVerdict::kNonWeight},
                 {"body.mask", KeyVerdict::kBaked},
                 {"body.copy", KeyVerdict::kTied, false, "body.weight"},
                 {"head.weight", KeyVerdict::kUnusedModule, true},
                 {"head.steps", KeyVerdict::kNonWeight, true}};
  EXPECT_THAT(save_text(report, RunMode::kWrite, Lists::kShort),
              testing::HasSubstr("\nunused module: head (1 key)\n"
                                 "unused keys: body.steps\n"
                                 "baked into the graph: body.mask\n"
                                 "tied: body.copy shares body.weight\n"));
}

TEST(SaveText, OfSeveralModelsBeginsWithWhatTheyLack) {
  SaveReport report = saved();
  report.complete = false;
  report.models.push_back(report.models[0]);
  report.models[1].left = {{"a", SlotVerdict::kMissing}};
  report.models[1].complete = false;
  const std::string text = save_text(report, RunMode::kWrite, Lists::kShort);
  EXPECT_THAT(text, testing::StartsWith("incomplete (--partial): 1 weight without data\n"));
  EXPECT_THAT(text, testing::HasSubstr("; the rest is verified\n"));
}

}  // namespace
}  // namespace onnx_external
