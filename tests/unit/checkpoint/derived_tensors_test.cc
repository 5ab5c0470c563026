#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/derivation_json.h"
#include "onnx_external/derived.h"
#include "support/open_bytes.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<float>;

Numbers counted(float first, std::size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

class Derived : public testing::Test {
 protected:
  Status add(const std::string& json, std::uint64_t max_expand = 4) {
    const auto parsed = parse_json(json, kMaxDerivedJsonDepth);
    const auto derived =
        parsed ? parse_derived(*parsed) : Result<std::vector<DerivedTensor>>(fail(parsed.error()));
    return derived ? add_derived_tensors(checkpoint_, *derived, max_expand)
                   : Status(fail(derived.error()));
  }

  const TensorView& last() const { return checkpoint_.tensors().back(); }

  Numbers read() const { return read(checkpoint_.tensors().size() - 1); }
  Numbers read(std::size_t tensor) const {
    Numbers numbers(checkpoint_.nbytes(tensor) / sizeof(float));
    EXPECT_THAT(checkpoint_.read(tensor, 0, std::as_writable_bytes(std::span(numbers))), IsOk());
    return numbers;
  }

  // a: 0 to 5, b: 10 to 15, c: 20 to 25 turned, h: of another type.
  Checkpoint checkpoint_ = *open_bytes(torch_zip(
      {{.name = "a", .shape = {2, 3}, .bytes = f32(counted(0, 6))},
       {.name = "b", .shape = {2, 3}, .bytes = f32(counted(10, 6))},
       {.name = "c",
        .shape = {2, 3},
        .bytes = f32(counted(20, 6)),
        .strides = std::vector<std::int64_t>{1, 2}},
       {.name = "row", .shape = {1, 3}, .bytes = f32(counted(30, 3))},
       {.name = "h", .dtype = DType::kFloat16, .shape = {2, 3}, .bytes = std::string(12, 'h')}}));
};

TEST_F(Derived, ConcatenatesAlongAnyDimension) {
  ASSERT_THAT(add(R"({"x": {"concat": ["a", "row", "b"], "dim": 0},
                      "y": {"concat": ["a", "b"], "dim": -1}})"),
              IsOk());
  EXPECT_THAT(checkpoint_.tensors()[5].shape, ElementsAre(5, 3));
  EXPECT_EQ(read(5), (Numbers{0, 1, 2, 3, 4, 5, 30, 31, 32, 10, 11, 12, 13, 14, 15}));
  EXPECT_THAT(last().shape, ElementsAre(2, 6));
  EXPECT_EQ(read(), (Numbers{0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15}));
  EXPECT_THAT(checkpoint_.made_of(5), ElementsAre(0, 3, 1));
  EXPECT_TRUE(checkpoint_.made_of(0).empty());
}

TEST_F(Derived, StacksAlongAnyDimension) {
  ASSERT_THAT(add(R"({"x": {"stack": ["a", "b"], "dim": 0},
                      "y": {"stack": ["a", "b"], "dim": 1},
                      "z": {"stack": ["a", "b"], "dim": -1}})"),
              IsOk());
  EXPECT_THAT(checkpoint_.tensors()[5].shape, ElementsAre(2, 2, 3));
  EXPECT_EQ(read(5), (Numbers{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(read(6), (Numbers{0, 1, 2, 10, 11, 12, 3, 4, 5, 13, 14, 15}));
  EXPECT_THAT(last().shape, ElementsAre(2, 3, 2));
  EXPECT_EQ(read(), (Numbers{0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15}));
}

TEST_F(Derived, TakesPartsInWhateverOrderTheyLie) {
  ASSERT_THAT(add(R"({"x": {"concat": ["c", "c"], "dim": 0},
                      "y": {"concat": ["a", "c"], "dim": 0},
                      "z": {"stack": [{"key": "a", "recipe": ["transpose"]},
                                      {"key": "b", "recipe": ["transpose"]}], "dim": 0}})"),
              IsOk());
  EXPECT_EQ(read(5), (Numbers{20, 22, 24, 21, 23, 25, 20, 22, 24, 21, 23, 25}));
  EXPECT_EQ(read(6), (Numbers{0, 1, 2, 3, 4, 5, 20, 22, 24, 21, 23, 25}));
  EXPECT_EQ(read(), (Numbers{0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15}));
  EXPECT_THAT(last().strides, ElementsAre(6, 1, 3));  // the matrices lie as they are
}

TEST_F(Derived, AppliesARecipeToTheResult) {
  ASSERT_THAT(add(R"({"x": {"stack": ["a", "b"], "dim": 0, "recipe": ["cast"]}})"),
              FailsWith(ErrorCode::kCorrupt, "cannot be cast"));
  ASSERT_THAT(add(R"({"x": {"stack": ["a", "b"], "dim": 0,
                            "recipe": [{"permute": [0, 2, 1]}, {"slice": [1, 1, 3]}]}})"),
              IsOk());
  EXPECT_THAT(last().shape, ElementsAre(2, 2, 2));
  EXPECT_EQ(read(), (Numbers{1, 4, 2, 5, 11, 14, 12, 15}));
}

TEST_F(Derived, ReshapesTensorsThatNoStridesDescribe) {
  ASSERT_THAT(add(R"({"x": {"key": "a", "recipe": ["transpose", {"reshape": [2, 3]},
                                                   "transpose"]}})"),
              IsOk());
  EXPECT_THAT(last().shape, ElementsAre(3, 2));
  EXPECT_EQ(read(), (Numbers{0, 4, 3, 2, 1, 5}));
}

TEST_F(Derived, MayBeMadeOfOthersInAnyOrder) {
  ASSERT_THAT(add(R"({"all": {"concat": ["pair", {"stack": ["row", "row"], "dim": 0,
                                                  "recipe": [{"reshape": [2, 3]}]}], "dim": 0},
                      "pair": {"concat": ["a", "b"], "dim": 0}})"),
              IsOk());
  EXPECT_EQ(read(5), (Numbers{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 30, 31, 32, 30, 31, 32}));
  EXPECT_THAT(checkpoint_.made_of(5), ElementsAre(6, 3, 3));
}

TEST_F(Derived, GivesAnyRangeOfItsBytes) {
  ASSERT_THAT(add(R"({"x": {"concat": ["a", "row", "b"], "dim": 0}})"), IsOk());
  const std::string all = read_all(checkpoint_, 5);
  std::string some(17, '\0');
  EXPECT_THAT(checkpoint_.read(5, 21, std::as_writable_bytes(std::span(some))), IsOk());
  EXPECT_EQ(some, all.substr(21, 17));
}

TEST_F(Derived, ARenamedRangeStaysPlain) {
  ASSERT_THAT(add(R"({"x": {"key": "a", "recipe": [{"slice": [0, 1, 2]}]}})"), IsOk());
  const auto range = checkpoint_.plain_range(5);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->offset, checkpoint_.plain_range(0)->offset + 12);
}

TEST_F(Derived, IsRefusedWhereItsPartsDoNotFit) {
  const std::vector<std::tuple<std::string, ErrorCode, std::string>> refused = {
      {R"({"concat": ["a", "none"], "dim": 0})", ErrorCode::kNotFound, "no key 'none'"},
      {R"({"concat": ["a", "h"], "dim": 0})", ErrorCode::kMismatch, "part 1 is float16 [2, 3]"},
      {R"({"concat": ["a", "row"], "dim": 1})", ErrorCode::kMismatch, "cannot be joined"},
      {R"({"stack": ["a", "row"], "dim": 0})", ErrorCode::kMismatch, "cannot be joined"},
      {R"({"concat": ["a", {"key": "a", "recipe": [{"reshape": [6]}]}], "dim": 0})",
       ErrorCode::kMismatch, "different numbers of dimensions"},
      {R"({"concat": ["a"], "dim": 2})", ErrorCode::kMismatch, "dimension 2 does not exist"},
      {R"({"stack": ["a"], "dim": -4})", ErrorCode::kMismatch, "dimension -4 does not exist"},
      {R"({"concat": [{"key": "a", "recipe": [{"permute": [0]}]}], "dim": 0})",
       ErrorCode::kMismatch, "permute [0]"},
      {R"("x")", ErrorCode::kInvalidArgument, "circular"},
      {R"({"stack": [{"key": "x"}], "dim": 0})", ErrorCode::kInvalidArgument, "circular"},
  };
  for (const auto& [definition, code, message] : refused) {
    EXPECT_THAT(add(R"({"x": )" + definition + "}"), FailsWith(code, "derived tensor 'x': "))
        << definition;
    EXPECT_THAT(add(R"({"x": )" + definition + "}"), FailsWith(code, message)) << definition;
  }
  EXPECT_THAT(add(R"({"a": "b"})"), FailsWith(ErrorCode::kAmbiguous, "a key with that name"));
  EXPECT_EQ(checkpoint_.tensors().size(), 5U);
  EXPECT_EQ(checkpoint_.storages().size(), 5U);
}

TEST_F(Derived, HasALimitedDepth) {
  std::string chain = R"({"x0": "a")";
  for (std::size_t i = 1; i < kMaxDerivedDepth; ++i) {
    chain += ", \"x" + std::to_string(i) + "\": \"x" + std::to_string(i - 1) + "\"";
  }
  EXPECT_THAT(add(chain + R"(, "y": "x7"})"), FailsWith(ErrorCode::kInvalidArgument, "8 definit"));
  EXPECT_THAT(add(chain + "}"), IsOk());
  std::string nested = "\"a\"";
  for (std::size_t i = 0; i < kMaxDerivedDepth; ++i) {
    nested = R"({"stack": [)" + nested + R"(], "dim": 0})";
  }
  EXPECT_THAT(add(R"({"n": )" + nested + "}"), IsOk());
  EXPECT_THAT(add(R"({"m": {"stack": [)" + nested + R"(], "dim": 0}})"),
              FailsWith(ErrorCode::kCorrupt, "8 levels deep"));
}

TEST_F(Derived, HasALimitedNumberOfParts) {
  std::vector<DerivedTensor> many(1);
  many[0].from.kind = DerivationKind::kStack;
  many[0].from.parts.resize(kMaxDerivedParts + 1);
  EXPECT_THAT(add_derived_tensors(checkpoint_, many),
              FailsWith(ErrorCode::kInvalidArgument, "more than 1000000 parts"));
}

TEST_F(Derived, CountsAgainstTheLimitOnExpansion) {
  std::string parts = "\"a\"";
  for (int i = 1; i < 3000; ++i) {
    parts += ", \"a\"";
  }
  const std::string json = R"({"x": {"stack": [)" + parts +
                           R"(], "dim": 0}, "y": {"stack": ["x", "x", "x", "x", "x", "x", "x", )" +
                           R"("x", "x", "x"], "dim": 0}, "z": {"stack": ["y", "y", "y", "y", )" +
                           R"("y", "y", "y", "y", "y", "y", "y", "y", "y", "y", "y", "y", )" +
                           R"("y", "y", "y", "y", "y", "y", "y", "y", "y", "y"], "dim": 0},)" +
                           R"("w": {"stack": ["z", "z", "z", "z"], "dim": 0}})";
  EXPECT_THAT(add(json), FailsWith(ErrorCode::kUnsupported, "--max-expand N"));
  EXPECT_EQ(checkpoint_.tensors().size(), 5U);
  EXPECT_THAT(add(json, 1'000'000), IsOk());
}

TEST(DerivedJson, IsReadAsItIsWritten) {
  const std::string text =
      R"({"x": {"concat": ["a", {"key": "b", "recipe": [{"slice": [0, 1, 2]}]}], "dim": -1}, )"
      R"("y": {"stack": ["x"], "dim": 0, "recipe": ["transpose"]}, "z": "y"})";
  const auto derived = parse_derived(*parse_json(text, kMaxDerivedJsonDepth));
  ASSERT_THAT(derived, IsOk());
  EXPECT_EQ(derived_json(*derived, " "), "{ " + text.substr(1));
}

TEST(DerivedJson, RejectsEachInvalidForm) {
  for (const char* key :
       {"1", "null", "[]", "{}", R"({"dim": 0})", R"({"key": 1})", R"({"key": "a", "dim": 0})",
        R"({"concat": ["a"]})", R"({"concat": [], "dim": 0})", R"({"concat": "a", "dim": 0})",
        R"({"concat": ["a"], "dim": 0.0})", R"({"concat": ["a"], "dim": "0"})",
        R"({"concat": ["a"], "dim": 9223372036854775808})",
        R"({"concat": ["a"], "stack": ["a"], "dim": 0})", R"({"key": "a", "concat": ["a"]})",
        R"({"concat": ["a"], "dim": 0, "axis": 0})", R"({"concat": [1], "dim": 0})",
        R"({"key": "a", "recipe": ["fold"]})", R"({"key": "a", "recipe": ["cast"]})"}) {
    EXPECT_THAT(parse_derived(*parse_json("{\"x\": " + std::string(key) + "}")),
                FailsWith(ErrorCode::kCorrupt, "derived tensor 'x': "))
        << key;
  }
  EXPECT_THAT(parse_derived(*parse_json("[]")), FailsWith(ErrorCode::kCorrupt, "{NAME: KEY"));
}

}  // namespace
}  // namespace onnx_external
