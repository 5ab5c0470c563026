#include <gmock/gmock.h>

#include <limits>
#include <utility>

#include "onnx_external/quantize.h"
#include "support/result_matchers.h"
#include "tensor/quantize/exact_sum.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/scheme_json.h"

namespace onnx_external {
namespace {

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> schemes;
  for (const std::uint32_t bits : {4U, 8U}) {
    for (std::uint32_t block = kMinQuantizedBlock; block <= kMaxQuantizedBlock; block *= 2) {
      for (const bool zero_points : {false, true}) {
        for (const std::uint32_t steps : {0U, 1U, 5U, kMaxSearchSteps}) {
          for (const DType scales : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
            schemes.push_back({bits, block, zero_points, steps, scales});
          }
        }
      }
    }
  }
  for (const std::uint32_t bits : {2U, 4U, 8U}) {
    for (const bool zero_points : {false, true}) {
      schemes.push_back({bits, 32, zero_points, 0, DType::kFloat16, true});
    }
    schemes.push_back({bits, 128, false, 0, DType::kFloat32, true, true});
  }
  return schemes;
}

bool is_chosen_by_users(const Scheme& scheme) {
  return !scheme.kept;
}

TEST(Scheme, IsReadBackFromItsTextAndItsJson) {
  for (const Scheme& scheme : all_schemes()) {
    const std::string text = scheme_text(scheme);
    ASSERT_THAT(check_scheme(scheme), IsOk()) << text;
    const auto read = parse_scheme(text);
    ASSERT_EQ(read.has_value(), is_chosen_by_users(scheme)) << text;
    if (read) {
      EXPECT_EQ(*read, scheme) << text;
    }
    const auto again = parse_scheme(*parse_json(scheme_json(scheme)));
    ASSERT_THAT(again, IsOk()) << scheme_json(scheme);
    EXPECT_EQ(*again, scheme) << scheme_json(scheme);
  }
}

TEST(Scheme, HasDefaultsForWhatATextLeavesOut) {
  EXPECT_EQ(scheme_text(*parse_scheme("int4")), "int4/64, zero points, 5 steps");
  EXPECT_EQ(scheme_text(*parse_scheme("int8")), "int8/128, symmetric, nearest");
  EXPECT_EQ(scheme_text(*parse_scheme("int4/32,symmetric")), "int4/32, symmetric, 5 steps");
  EXPECT_EQ(scheme_text(*parse_scheme("int8, 1 step, float16 scales")),
            "int8/128, symmetric, 1 step, float16 scales");
}

TEST(Scheme, IsNotReadFromOtherTexts) {
  for (const char* const text :
       {"", "4", "int3", "int4/", "int4/x", "int4/64x", "int4 ", "int4,", "int4, ",
        "int4,, nearest", "int4/64, five steps", "int4/64, -1 steps", "int4/64, steps",
        "int4, scales", "int4, float24 scales", "INT4", "int4/99999999999"}) {
    const auto scheme = parse_scheme(text);
    EXPECT_THAT(scheme, FailsWith(ErrorCode::kInvalidArgument, "is not a valid quantization"))
        << text;
  }
  EXPECT_THAT(parse_scheme("int4/48"), FailsWith(ErrorCode::kInvalidArgument, "not 48"));
  EXPECT_THAT(parse_scheme("int4/512"), FailsWith(ErrorCode::kInvalidArgument, "not 512"));
  EXPECT_THAT(parse_scheme("int4, 4 steps"), FailsWith(ErrorCode::kInvalidArgument, "not 4"));
  EXPECT_THAT(parse_scheme("int4, 35 steps"), FailsWith(ErrorCode::kInvalidArgument, "not 35"));
  EXPECT_THAT(parse_scheme("int4, int8 scales"),
              FailsWith(ErrorCode::kInvalidArgument, "not int8"));
}

TEST(Scheme, IsNotReadFromOtherJson) {
  for (const char* const text :
       {"4", "{}", R"({"bits": 4, "block": 64, "zero_points": true, "steps": 5})",
        R"({"bits": 4, "block": 64, "zero_points": 1, "steps": 5, "scales": "float32"})",
        R"({"bits": 4, "block": -64, "zero_points": true, "steps": 5, "scales": "float32"})",
        R"({"bits": 4, "block": 64, "zero_points": true, "steps": 4, "scales": "float32"})",
        R"({"bits": 4, "block": 64, "zero_points": true, "steps": 5, "scales": "float99"})",
        R"({"bits": 4, "block": 64, "zero_points": true, "steps": 5, "scale": "float32"})",
        R"({"bits": 3, "block": 64, "zero_points": true, "terms": false, "scales": "float32"})",
        R"({"bits": 4, "block": 64, "zero_points": true, "terms": true, "scales": "float32"})"}) {
    EXPECT_EQ(parse_scheme(*parse_json(text)).error().code, ErrorCode::kCorrupt) << text;
  }
}

TEST(QuantizeOptions, KeepCodesByAWordBeforeTheScheme) {
  QuantizeOptions options;
  ASSERT_THAT(set_scheme("int4/32", options), IsOk());
  EXPECT_EQ(options.keep, KeepCodes::kNo);
  EXPECT_EQ(options.scheme.block, 32U);
  ASSERT_THAT(set_scheme("keep", options), IsOk());
  EXPECT_EQ(options.keep, KeepCodes::kElseFloat);
  ASSERT_THAT(set_scheme("keep, int8/64", options), IsOk());
  EXPECT_EQ(options.keep, KeepCodes::kElseScheme);
  EXPECT_EQ(scheme_text(options.scheme), "int8/64, symmetric, nearest");
  EXPECT_THAT(check_options(options), IsOk());
  for (const char* const text : {"keep,", "keeps", "keep, keep", "int8, keep", "int4/32, kept"}) {
    EXPECT_THAT(set_scheme(text, options),
                FailsWith(ErrorCode::kInvalidArgument, "is not a valid quantization"))
        << text;
  }
  ASSERT_THAT(set_scheme("keep", options), IsOk());
  options.head = HeadWeights::kInt4;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "the checkpoint"));
  options.head = HeadWeights::kInt8;
  options.form = QuantizedForm::kDequantizeLinear;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "matmulnbits"));
}

TEST(WeightScheme, IsAPatternAndASchemeAroundTheLastEqualsSign) {
  const auto one = parse_weight_scheme("*.down_proj.*=int4/128, 17 steps");
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->pattern, "*.down_proj.*");
  EXPECT_EQ(scheme_text(one->scheme), "int4/128, zero points, 17 steps");
  EXPECT_EQ(parse_weight_scheme("a=b=int8")->pattern, "a=b");
  for (const char* const text : {"", "int8", "=int8"}) {
    EXPECT_THAT(parse_weight_scheme(text),
                FailsWith(ErrorCode::kInvalidArgument, "does not have the form PATTERN=SCHEME"));
  }
  for (const char* const text : {"head*=", "head*=float", "head*=keep"}) {
    EXPECT_THAT(parse_weight_scheme(text),
                FailsWith(ErrorCode::kInvalidArgument, "the weights 'head*': "))
        << text;
  }
  EXPECT_THAT(parse_weight_scheme("*=int4/48"), FailsWith(ErrorCode::kInvalidArgument, "not 48"));
}

TEST(QuantizeOptions, AreCheckedByOneFunction) {
  EXPECT_THAT(check_options({}), IsOk());
  QuantizeOptions options;
  options.accuracy_level = 3;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "not 3"));
  options = {.scheme = default_scheme(8), .head = HeadWeights::kInt4};
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "4-bit head"));
  options = {};
  options.scheme.block = 0;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "not 0"));
  options = {};
  options.keep_float = {"*.router", ""};
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "is empty"));
  options = {};
  options.min_rows = 0;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "at least 1"));
  options = {.scheme = {}, .weights = {{"*", default_scheme(8)}}};
  EXPECT_THAT(check_options(options), IsOk());
  options.keep = KeepCodes::kElseScheme;
  EXPECT_THAT(check_options(options), IsOk());
  options.keep = KeepCodes::kElseFloat;
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "'keep, int8'"));
  options = {.scheme = {}, .weights = {{"", default_scheme(8)}}};
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "is empty"));
  options = {.scheme = {}, .weights = {{"*.up.*", {.bits = 4, .block = 48}}}};
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "'*.up.*': a block"));
  options = {.scheme = {}, .weights = {{"*", {.steps = 0, .kept = true}}}};
  EXPECT_THAT(check_options(options), FailsWith(ErrorCode::kInvalidArgument, "kept codes"));
}

TEST(QuantizeOptions, GiveTheHeadItsOwnScheme) {
  QuantizeOptions options;
  EXPECT_EQ(scheme_text(head_scheme(options)), "int8/64, symmetric, nearest");
  options.head = HeadWeights::kInt4;
  EXPECT_EQ(head_scheme(options), options.scheme);
  options = {.scheme = {.bits = 8, .block = 32, .steps = 3}};
  EXPECT_EQ(head_scheme(options), options.scheme);
}

TEST(PackedLayout, HasTheShapesOfMatMulNBits) {
  const auto layout = packed_layout({.bits = 4, .block = 32}, 5, 70);  // three blocks
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->blocks, 3U);
  EXPECT_EQ(layout->codes, (PackedPart{DType::kUInt8, {5, 3, 16}, 48, 240}));
  EXPECT_EQ(layout->scales, (PackedPart{DType::kFloat32, {5, 3}, 12, 60}));
  EXPECT_EQ(layout->zero_points, (PackedPart{DType::kUInt8, {5, 2}, 2, 10}));
  EXPECT_EQ(layout->bytes(), 310U);
  const auto wide = packed_layout({8, 128, false, 0, DType::kFloat16}, 3, 256);
  ASSERT_THAT(wide, IsOk());
  EXPECT_EQ(wide->codes, (PackedPart{DType::kUInt8, {3, 2, 128}, 256, 768}));
  EXPECT_EQ(wide->scales, (PackedPart{DType::kFloat16, {3, 2}, 4, 12}));
  EXPECT_EQ(wide->zero_points, PackedPart{});
}

TEST(PackedLayout, OfNoRowsOrColumnsIsEmpty) {
  for (const auto& [rows, columns] : {std::pair(0, 64), {64, 0}, {0, 0}}) {
    const auto layout = packed_layout({}, rows, columns);
    ASSERT_THAT(layout, IsOk());
    EXPECT_EQ(layout->bytes(), 0U);
  }
}

TEST(PackedLayout, IsRefusedIfSizesOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(packed_layout({}, std::int64_t{1} << 31, 1 << 20), IsOk());
  EXPECT_EQ(packed_layout({}, 1, -1).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(packed_layout({}, kMost, 64).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(packed_layout({}, kMost / 64, kMost / 64).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(packed_layout({}, kMost / 33, 64).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(packed_layout({.bits = 8}, 1, kMost).error().code, ErrorCode::kCorrupt);
}

TEST(ExactSum, DoesNotDependOnTheOrder) {
  std::vector<double> values = {1e300, 1e-300, 5e-324, 3, 0.1, 1e18, 2e-308, 0, 1.7e308};
  ExactSum forward;
  ExactSum halves[2];
  for (std::size_t i = 0; i < values.size(); ++i) {
    forward.add(values[i]);
    halves[i % 2].add(values[values.size() - 1 - i]);
  }
  halves[1].add(halves[0]);
  EXPECT_EQ(forward.value(), halves[1].value());
  EXPECT_EQ(forward.value(), 1.7e308 + 1e300);
}

TEST(ExactSum, LosesNothing) {
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) {
    sum.add(0.1);
  }
  EXPECT_EQ(sum.value(), 100.0);  // 99.9999999999986 by plain additions
  ExactSum least;
  least.add(5e-324);
  least.add(5e-324);
  EXPECT_EQ(least.value(), 1e-323);
  EXPECT_EQ(ExactSum().value(), 0);
  ExactSum thirds;
  thirds.add(1.0 / 3);
  EXPECT_EQ(thirds.value(), 1.0 / 3);
}

}  // namespace
}  // namespace onnx_external
