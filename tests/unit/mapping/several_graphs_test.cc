// Several graphs with equal names of weights, whose keys differ in a prefix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mapping/map_steps.h"
#include "support/result_matchers.h"
#include "unit/mapping/mapping_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SeveralGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* slot : {"body.weight", "out.weight"}) {
      c.open(slot);
    }
  }

  void keys(const std::vector<std::string>& prefixes) {
    for (const std::string& prefix : prefixes) {
      for (const char* name : {"body.weight", "out.weight"}) {
        c.key(prefix + name);
      }
    }
  }

  [[nodiscard]] auto map(const std::vector<std::string>& names) const {
    std::vector<GraphToMap> graphs;
    for (const std::string& name : names) {
      graphs.push_back({name, &c.graph});
    }
    return map_graphs(graphs, c.keys, c.options);
  }

  // The prefix of each graph, or the message of the refusal.
  [[nodiscard]] std::vector<std::string> prefixes(const std::vector<std::string>& names) const {
    const auto mappings = map(names);
    if (!mappings) {
      return {mappings.error().message};
    }
    std::vector<std::string> found;
    for (const Mapping& mapping : *mappings) {
      found.push_back(mapping.key_prefix);
    }
    return found;
  }

  MappingCase c;
};

TEST_F(SeveralGraphs, TakeTheKeysUnderTheirOwnNames) {
  keys({"left.", "right."});
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}), ElementsAre("-left.", "-right."));
  EXPECT_THAT(prefixes({"right.onnx", "left.onnx"}), ElementsAre("-right.", "-left."));
}

TEST_F(SeveralGraphs, FindTheirNamesBesideWrappers) {
  keys({"module.left.", "module.right.module."});
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}),
              ElementsAre("-module.left.", "-module.right.module."));
}

TEST_F(SeveralGraphs, MeanWholeComponentsByTheirNames) {
  keys({"left.", "bright."});
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}),
              ElementsAre(HasSubstr("right.onnx: the keys match")));
}

TEST_F(SeveralGraphs, MayMeanNamesInAKeyWithoutDots) {
  keys({"left_", "right_"});
  for (MappingKey& key : c.keys.keys) {
    key.name.replace(key.name.find('.'), 1, "_");
  }
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}), ElementsAre("-left_", "-right_"));
}

TEST_F(SeveralGraphs, WhoseNamesAreNotPrefixesNeedNamesInsteadOfAPrefix) {
  keys({"left.", "right."});
  const auto refused = map({"one.onnx", "two.onnx"});
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous,
                                 "each graph uses the keys under its own name (here 'one.')"));
  EXPECT_THAT(refused.error().details->remedies, IsEmpty());
}

TEST_F(SeveralGraphs, OfStudentAndTeacherTakeThePrefixBeforeTheirNames) {
  keys({"student.left.", "student.right.", "teacher.left.", "teacher.right."});
  const auto refused = map({"left.onnx", "right.onnx"});
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous, "more than one way"));
  ASSERT_EQ(refused.error().details->remedies.size(), 2U);
  EXPECT_EQ(refused.error().details->remedies[0].value, "student");
  EXPECT_EQ(refused.error().details->remedies[1].value, "teacher");
  c.options.prefix = "student";
  c.options.unmatched = Unmatched::kSkip;
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}),
              ElementsAre("-student. -left.", "-student. -right."));
}

// The keys of another name would fill more slots.
TEST_F(SeveralGraphs, KeepTheirNamesWhereTheirKeysDoNotFit) {
  keys({"right."});
  c.key("left.body.weight", {3, 3});
  c.key("left.out.weight");
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}),
              ElementsAre(HasSubstr("but key 'left.body.weight' is FLOAT [3, 3]")));
  c.keys.keys.back().shape = {3, 3};
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}),
              ElementsAre(HasSubstr("but key 'left.body.weight' is FLOAT [3, 3]")));
}

TEST_F(SeveralGraphs, CannotAllTakeTheKeysOfOnePrefixIfOthersFit) {
  keys({"left.", "right."});
  c.options.prefix = "left";
  const auto refused = map({"left.onnx", "right.onnx"});
  ASSERT_THAT(refused, FailsWith(ErrorCode::kAmbiguous,
                                 "'left.onnx' and 'right.onnx' would both get the keys under "
                                 "'left', but the keys under 'right.' also match"));
  ASSERT_EQ(refused.error().details->remedies.size(), 1U);
  EXPECT_EQ(refused.error().details->remedies[0].option, RemedyOption::kIgnore);
  c.options.ignore = {refused.error().details->remedies[0].value};
  EXPECT_THAT(prefixes({"left.onnx", "right.onnx"}), ElementsAre("-left.", "-left."));
}

TEST_F(SeveralGraphs, ShareTheKeysOfAPrefixIfNoOthersFit) {
  keys({"model."});
  c.key("head.weight");
  c.options.prefix = "model";
  EXPECT_THAT(prefixes({"one.onnx", "two.onnx"}), ElementsAre("-model.", "-model."));
}

TEST_F(SeveralGraphs, AlsoTakeTheirOwnNamesIfOnlyOneIsMapped) {
  keys({"left.", "right."});
  const GraphToMap graph{"right.onnx", &c.graph};
  const OthersOfSet others{true, {"left.body.weight", "left.out.weight"}};
  const auto mapped = map_graphs_beside({&graph, 1}, c.keys, c.options, others);
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(mapped->front().key_prefix, "-right.");
  EXPECT_THAT(map_graphs_beside({&graph, 1}, c.keys, c.options, {}),
              FailsWith(ErrorCode::kAmbiguous, "more than one way"));
}

// 'one.onnx' and 'two.onnx' with a slot each, and a key that neither takes.
class VerdictsOfSeveralGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    one.slot("one.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
    two.slot("two.weight", SlotKind::kInitializer, SymbolicShape{2, 2});
    one.key("one.weight");
    one.key("two.weight");
  }

  // The verdicts on keys, which are the same for both.
  [[nodiscard]] std::vector<KeyVerdict> verdicts(MappingEvidence evidence_of_two = {}) const {
    const std::vector<GraphToMap> graphs = {{"one.onnx", &one.graph, {}},
                                            {"two.onnx", &two.graph, std::move(evidence_of_two)}};
    const auto mappings = map_graphs(graphs, one.keys, one.options);
    if (!mappings || (*mappings)[0].keys != (*mappings)[1].keys) {
      return {};
    }
    std::vector<KeyVerdict> found;
    for (const MappedKey& key : mappings->front().keys) {
      found.push_back(key.verdict);
    }
    return found;
  }

  MappingCase one;
  MappingCase two;
};

TEST_F(VerdictsOfSeveralGraphs, ArePassedToTheOthers) {
  one.key("head.weight", {3, 3});
  EXPECT_THAT(verdicts(),
              ElementsAre(KeyVerdict::kUsed, KeyVerdict::kUsed, KeyVerdict::kUnusedModule));
  // The data of one graph has the key's values.
  two.slot("onnx::MatMul_8", SlotKind::kInitializer, SymbolicShape{3, 3});
  MappingEvidence evidence;
  evidence.slot_holds = [](std::uint32_t slot, std::uint32_t key, const Recipe&) {
    return Result<bool>(slot == 1 && key == 2);
  };
  EXPECT_THAT(verdicts(evidence),
              ElementsAre(KeyVerdict::kUsed, KeyVerdict::kUsed, KeyVerdict::kBaked));
}

TEST_F(VerdictsOfSeveralGraphs, CallAKeyUnusedThatOneGraphHasAPlaceFor) {
  one.key("head.weight", {3, 3});
  two.graph.modules = {"head"};
  one.options.unmatched = Unmatched::kSkip;
  EXPECT_THAT(verdicts(), ElementsAre(KeyVerdict::kUsed, KeyVerdict::kUsed, KeyVerdict::kUnused));
}

}  // namespace
}  // namespace onnx_external
