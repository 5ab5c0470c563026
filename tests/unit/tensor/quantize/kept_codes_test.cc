#include "tensor/quantize/kept_codes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "support/result_matchers.h"
#include "tensor/quantize/dequantize_rows.h"
#include "tensor/quantize/packed_layout.h"

namespace onnx_external {
namespace {

StoredCodes stored(std::uint32_t bits, std::int64_t columns, std::int64_t group,
                   CodeZeros zeros = CodeZeros::kMiddle) {
  return {CodeValues::kUnsigned, zeros, bits, columns, group};
}

std::string form_of(const StoredCodes& codes) {
  const auto form = kept_form(codes, DType::kFloat32);
  return form ? scheme_text(form->scheme) : form.error().message;
}

TEST(KeptForm, TakesTheNextBitsThatANodeHas) {
  const std::vector<std::uint32_t> wanted{2, 2, 4, 4, 8, 8, 8, 8};
  for (std::uint32_t bits = 1; bits <= 8; ++bits) {
    EXPECT_EQ(kept_form(stored(bits, 128, 32), DType::kFloat32)->scheme.bits, wanted[bits - 1]);
  }
  StoredCodes fp4 = stored(4, 128, 32);
  fp4.values = CodeValues::kE2M1;
  EXPECT_EQ(form_of(fp4), "int8/32, symmetric, kept");
}

TEST(KeptForm, HasBlocksThatDivideTheGroups) {
  EXPECT_EQ(form_of(stored(4, 512, 128)), "int4/128, symmetric, kept");
  EXPECT_EQ(form_of(stored(4, 4096, 1024)), "int4/256, symmetric, kept");
  EXPECT_EQ(form_of(stored(4, 384, 96)), "int4/32, symmetric, kept");
  EXPECT_EQ(form_of(stored(4, 4096, 4096)), "int4/128, symmetric, kept");
  EXPECT_EQ(form_of(stored(4, 96, 96)), "int4/32, symmetric, kept");
  EXPECT_EQ(form_of(stored(4, 100, 1000)), "int4/128, symmetric, kept");
  EXPECT_THAT(form_of(stored(4, 80, 40)), testing::HasSubstr("groups of 40 columns"));
}

TEST(KeptForm, PutsFractionsIntoTerms) {
  EXPECT_EQ(form_of(stored(4, 128, 64, CodeZeros::kIntegers)), "int4/64, zero points, kept");
  EXPECT_EQ(form_of(stored(4, 128, 64, CodeZeros::kAny)), "int4/64, terms, kept");
  EXPECT_EQ(form_of(stored(6, 128, 64, CodeZeros::kAny)), "int8/64, terms, kept");
  EXPECT_THAT(form_of(stored(4, 96, 64, CodeZeros::kAny)), testing::HasSubstr("shorter"));
}

TEST(OrderByGroup, SortsColumnsAndKeepsTheirOrderWithinAGroup) {
  const std::vector<std::int32_t> groups{1, 0, 1, 0, 2};
  EXPECT_THAT(*order_by_group(groups, 2), testing::ElementsAre(1, 3, 0, 2, 4));
  EXPECT_THAT(*order_by_group(std::vector<std::int32_t>{0, 0, 1, 1, 2}, 2), testing::IsEmpty());
}

TEST(OrderByGroup, RejectsGroupsThatAreNotBlocks) {
  for (const std::vector<std::int32_t>& groups :
       {std::vector<std::int32_t>{0, 0, 0, 1}, {0, 1, 2, 3}, {0, 0, -1, 1}, {0, 2, 1, 1, 2}}) {
    EXPECT_THAT(order_by_group(groups, 2), FailsWith(ErrorCode::kUnsupported, "groups"));
  }
}

// A random matrix in the checkpoint's terms, and its weights.
struct Example {
  StoredCodes stored;
  std::int64_t rows = 3;
  std::vector<std::int32_t> groups;  // of each column
  std::vector<std::uint8_t> codes;
  std::vector<double> scales;
  std::vector<double> zeros;
  std::vector<double> minima;

  Example(const StoredCodes& codes_of, unsigned seed) : stored(codes_of) {
    std::mt19937 random(seed);
    const std::int64_t count = (stored.columns + stored.group - 1) / stored.group;
    for (std::int64_t k = 0; k < stored.columns; ++k) {
      groups.push_back(static_cast<std::int32_t>(k / stored.group));
    }
    if (!stored.in_order) {
      std::shuffle(groups.begin(), groups.end(), random);
    }
    for (std::int64_t i = 0; i < rows * stored.columns; ++i) {
      codes.push_back(static_cast<std::uint8_t>(random() % (1U << stored.bits)));
    }
    for (std::int64_t i = 0; i < rows * count; ++i) {
      scales.push_back(std::ldexp(static_cast<double>(random() % 2000) - 1000, -10));
      const auto zero = static_cast<double>(random() % (1U << stored.bits));
      zeros.push_back(stored.zeros == CodeZeros::kIntegers ? zero : zero + 0.375);
    }
    if (stored.zeros == CodeZeros::kMiddle) {
      zeros.clear();
    }
    if (stored.zeros == CodeZeros::kAny) {
      for (std::size_t i = 0; i < scales.size(); ++i) {
        minima.push_back(static_cast<double>(i) / 64);
      }
    }
  }

  [[nodiscard]] double weight(std::int64_t row, std::int64_t column) const {
    static constexpr std::array kE2M1{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    const std::int64_t count = std::ssize(scales) / rows;
    const auto at = static_cast<std::size_t>(row * stored.columns + column);
    const auto group =
        static_cast<std::size_t>(row * count + groups[static_cast<std::size_t>(column)]);
    const double scale = scales[group];
    if (stored.values == CodeValues::kE2M1) {
      return (codes[at] < 8 ? 1 : -1) * kE2M1[codes[at] % 8] * scale;
    }
    const double code = codes[at];
    const double zero = zeros.empty() ? 1 << (stored.bits - 1) : zeros[group];
    return (code - zero) * scale + (minima.empty() ? 0 : minima[group]);
  }
};

struct Parts {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> zero_points;
};

Status keep(const Example& example, const KeptForm& form, std::span<const std::int32_t> order,
            std::int64_t first, std::int64_t count, Parts& parts) {
  const auto layout = packed_layout(form.scheme, count, example.stored.columns);
  parts.codes.resize(layout->codes.bytes);
  parts.scales.resize(layout->scales.bytes);
  parts.zero_points.resize(layout->zero_points.bytes);
  const auto rows = [&](const auto& all) {
    const std::size_t row = all.size() / static_cast<std::size_t>(example.rows);
    return std::span(all).subspan(static_cast<std::size_t>(first) * row,
                                  static_cast<std::size_t>(count) * row);
  };
  return keep_rows(
      form, order, static_cast<std::uint64_t>(first),
      {rows(example.codes), rows(example.scales), rows(example.zeros), rows(example.minima)},
      {parts.codes, parts.scales, parts.zero_points});
}

int code_in(const Parts& parts, std::uint32_t bits, std::size_t index) {
  const std::size_t in_byte = 8 / bits;
  const auto byte = std::to_integer<unsigned>(parts.codes[index / in_byte]);
  return static_cast<int>((byte >> (index % in_byte * bits)) & ((1U << bits) - 1));
}

float float_in(const std::vector<std::byte>& bytes, std::size_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// What MatMulNBits multiplies by, one number after another.
double kept_weight(const Parts& parts, const KeptForm& form, std::size_t row, std::size_t column) {
  const Scheme& scheme = form.scheme;
  const std::size_t blocks =
      (static_cast<std::size_t>(form.stored.columns) + scheme.block - 1) / scheme.block;
  const std::size_t block = row * blocks + column / scheme.block;
  const int code = code_in(parts, scheme.bits, row * blocks * scheme.block + column);
  double zero = 1 << (scheme.bits - 1);
  if (scheme.zero_points) {
    const std::size_t in_byte = 8 / scheme.bits;
    const std::size_t row_bytes = (blocks + in_byte - 1) / in_byte;
    const std::size_t b = column / scheme.block;
    const auto byte = std::to_integer<unsigned>(parts.zero_points[row * row_bytes + b / in_byte]);
    zero = (byte >> (b % in_byte * scheme.bits)) & ((1U << scheme.bits) - 1);
  }
  const double term = scheme.terms ? float_in(parts.zero_points, block) : 0;
  return (code - zero) * float_in(parts.scales, block) + term;
}

std::vector<StoredCodes> examples() {
  std::vector<StoredCodes> all;
  for (std::uint32_t bits = 1; bits <= 8; ++bits) {
    for (const CodeZeros zeros : {CodeZeros::kMiddle, CodeZeros::kIntegers, CodeZeros::kAny}) {
      for (const bool in_order : {true, false}) {
        all.push_back({CodeValues::kUnsigned, zeros, bits, 192, 32, in_order});
        all.push_back({CodeValues::kUnsigned, zeros, bits, 192, 96, in_order});
      }
      all.push_back({CodeValues::kUnsigned, zeros, bits, 224, 224});
    }
    all.push_back({CodeValues::kUnsigned, CodeZeros::kIntegers, bits, 100, 32});
    all.push_back({CodeValues::kUnsigned, CodeZeros::kIntegers, bits, 100, 100});
  }
  all.push_back({CodeValues::kE2M1, CodeZeros::kMiddle, 4, 192, 16});
  all.push_back({CodeValues::kE2M1, CodeZeros::kMiddle, 4, 100, 32});
  return all;
}

TEST(KeepRows, KeepsEveryWeight) {
  for (const StoredCodes& codes : examples()) {
    const Example example(codes, codes.bits);
    const auto form = kept_form(codes, DType::kFloat32);
    ASSERT_THAT(form, IsOk());
    const auto order = order_by_group(example.groups, codes.group);
    ASSERT_THAT(order, IsOk());
    Parts parts;
    ASSERT_THAT(keep(example, *form, *order, 0, example.rows, parts), IsOk());
    for (std::int64_t row = 0; row < example.rows; ++row) {
      for (std::int64_t k = 0; k < codes.columns; ++k) {
        const std::int64_t from = order->empty() ? k : (*order)[static_cast<std::size_t>(k)];
        const double kept =
            kept_weight(parts, *form, static_cast<std::size_t>(row), static_cast<std::size_t>(k));
        ASSERT_NEAR(kept, example.weight(row, from), form->scheme.terms ? 1e-5 : 0)
            << scheme_text(form->scheme) << " from " << codes.bits << " bits, row " << row;
      }
    }
  }
}

TEST(KeepRows, GivesTheSameBytesForAnyNumberOfRows) {
  for (const StoredCodes& codes : examples()) {
    const Example example(codes, codes.bits + 100);
    const auto form = kept_form(codes, DType::kFloat16);
    const auto order = order_by_group(example.groups, codes.group);
    Parts all;
    ASSERT_THAT(keep(example, *form, *order, 0, example.rows, all), IsOk());
    Parts joined;
    for (std::int64_t row = 0; row < example.rows; ++row) {
      Parts one;
      ASSERT_THAT(keep(example, *form, *order, row, 1, one), IsOk());
      joined.codes.insert(joined.codes.end(), one.codes.begin(), one.codes.end());
      joined.scales.insert(joined.scales.end(), one.scales.begin(), one.scales.end());
      joined.zero_points.insert(joined.zero_points.end(), one.zero_points.begin(),
                                one.zero_points.end());
    }
    EXPECT_EQ(joined.codes, all.codes);
    EXPECT_EQ(joined.scales, all.scales);
    EXPECT_EQ(joined.zero_points, all.zero_points);
  }
}

TEST(KeepRows, RefusesWhatItsTypesDoNotHold) {
  Example large(stored(4, 64, 32), 1);
  large.scales[3] = 1e6;
  Parts parts;
  EXPECT_THAT(keep(large, *kept_form(large.stored, DType::kFloat16), {}, 0, 3, parts),
              FailsWith(ErrorCode::kUnsupported, "row 1: a scale is too large for float16"));
  Example odd(stored(4, 64, 32, CodeZeros::kIntegers), 1);
  odd.zeros[5] = 16;
  EXPECT_THAT(keep(odd, *kept_form(odd.stored, DType::kFloat32), {}, 0, 3, parts),
              FailsWith(ErrorCode::kCorrupt, "row 2: a zero point"));
  odd.zeros[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(keep(odd, *kept_form(odd.stored, DType::kFloat32), {}, 0, 3, parts),
              FailsWith(ErrorCode::kCorrupt, "row 2: a zero point"));
}

TEST(KeepsBytes, IsTrueForRowsOfWholeBlocksAlone) {
  const auto keeps = [](const StoredCodes& codes) {
    return keeps_bytes(*kept_form(codes, DType::kFloat32));
  };
  EXPECT_TRUE(keeps(stored(4, 128, 32)));
  EXPECT_TRUE(keeps(stored(8, 96, 96)));
  EXPECT_TRUE(keeps(stored(4, 128, 32, CodeZeros::kAny)));
  EXPECT_FALSE(keeps(stored(3, 128, 32)));
  EXPECT_FALSE(keeps(stored(4, 100, 100)));
}

}  // namespace
}  // namespace onnx_external
