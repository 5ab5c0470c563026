#include "tensor/quantize/quantize_rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <random>
#include <string>

#include "tensor/quantize/dequantize_rows.h"
#include "unit/tensor/quantize/packed_rows.h"
#include "unit/tensor/quantize/reference_quantizer.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace onnx_external {
namespace {

constexpr std::array kFloats = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Calls `check` with every scheme.
template <typename Check>
void for_each_scheme(const Check& check) {
  for (const std::uint32_t bits : {4U, 8U}) {
    for (std::uint32_t block = kMinQuantizedBlock; block <= kMaxQuantizedBlock; block *= 2) {
      for (const bool zero_points : {false, true}) {
        for (const std::uint32_t steps : {0U, 5U}) {
          for (const DType scales : kFloats) {
            check(Scheme{bits, block, zero_points, steps, scales});
          }
        }
      }
    }
  }
}

void store(std::uint32_t bits, std::uint64_t index, int code, std::byte* out) {
  const auto value = static_cast<std::uint8_t>(code);
  if (bits == 8) {
    out[index] = std::byte{value};
  } else {
    const int shift = index % 2 == 0 ? 0 : 4;
    out[index / 2] &= ~(std::byte{15} << shift);
    out[index / 2] |= std::byte{value} << shift;
  }
}

// Everything by the reference.
Packed expected(const Scheme& scheme, const Rows& rows) {
  const ReferenceQuantizer reference(scheme);
  const std::vector<float> values = rows.floats();
  const std::uint64_t blocks = (rows.columns + scheme.block - 1) / scheme.block;
  Packed out = room_for(scheme, rows.count(), rows.columns);
  std::fill(out.zero_points.begin(), out.zero_points.end(), std::byte{0x80});  // unused halves
  std::vector<float> scales;
  for (std::uint64_t row = 0; row < rows.count(); ++row) {
    const std::uint64_t zeros = row * ((blocks * scheme.bits + 7) / 8);
    for (std::uint64_t block = 0; block < blocks; ++block) {
      std::vector<float> x(scheme.block);
      const std::uint64_t first = block * scheme.block;
      const std::uint64_t count = std::min<std::uint64_t>(scheme.block, rows.columns - first);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * rows.columns + first), count,
                  x.begin());
      const ReferenceBlock made = reference.quantize(x);
      for (std::uint64_t k = 0; k < scheme.block; ++k) {
        store(scheme.bits, (row * blocks + block) * scheme.block + k, made.codes[k],
              out.codes.data());
      }
      scales.push_back(made.scale);
      if (scheme.zero_points) {
        store(scheme.bits, block, made.zero, out.zero_points.data() + zeros);
      }
    }
  }
  cast_elements(DType::kFloat32, scheme.scales, std::as_bytes(std::span(scales)), out.scales);
  return out;
}

// The first rows whose bytes differ in one of the tensors, for a message.
std::string difference(const Packed& found, const Packed& wanted) {
  const auto at = [](const Bytes& a, const Bytes& b) {
    return std::to_string(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin()) +
           " of " + std::to_string(a.size());
  };
  return "codes " + at(found.codes, wanted.codes) + ", scales " + at(found.scales, wanted.scales) +
         ", zero points " + at(found.zero_points, wanted.zero_points);
}

// Rows of float32 whose scales do not fit into float16 are replaced by other hard ones.
Rows hard_rows(const Scheme& scheme, DType dtype, std::uint32_t columns) {
  HardValues values(columns * 31 + scheme.steps);
  Rows rows = values.matrix(dtype, 35, columns);
  if (scheme.scales == DType::kFloat16) {
    for (std::uint32_t row = 15; row < 35; row += 16) {
      std::copy_n(rows.values.begin(), rows.row_bytes(),
                  rows.values.begin() + static_cast<std::ptrdiff_t>(row * rows.row_bytes()));
    }
  }
  return rows;
}

TEST(QuantizeRows, GiveTheBytesOfTheReferenceOnEveryPath) {
  for_each_scheme([](const Scheme& scheme) {
    for (const DType dtype : kFloats) {
      for (const std::uint32_t columns : {2 * scheme.block, scheme.block + 13}) {
        const Rows rows = hard_rows(scheme, dtype, columns);
        const Packed wanted = expected(scheme, rows);
        for (const QuantizePath path : paths()) {
          const Packed found = quantized(scheme, rows, nullptr, path);
          ASSERT_TRUE(found == wanted)
              << scheme_text(scheme) << " of " << torch_name(dtype) << " " << columns << ", path "
              << static_cast<int>(path) << ": " << difference(found, wanted);
        }
      }
    }
  });
}

// With errors, the kernels scale the values before they encode them.
TEST(QuantizeRows, GiveTheSameBytesAndErrorsOnEveryPathIfErrorsAreWanted) {
  for_each_scheme([](const Scheme& scheme) {
    for (const DType dtype : kFloats) {
      const Rows rows = hard_rows(scheme, dtype, 3 * scheme.block + 1);
      const Packed plain = quantized(scheme, rows);
      double first = -1;
      for (const QuantizePath path : paths()) {
        QuantizationError error;
        ASSERT_EQ(quantized(scheme, rows, &error, path), plain) << scheme_text(scheme);
        first = first < 0 ? error.relative_rms() : first;
        ASSERT_EQ(error.relative_rms(), first) << scheme_text(scheme);
      }
    }
  });
}

// The same on every machine and with every compiler: a change here changes what files hold.
TEST(QuantizeRows, HaveAFixedDigest) {
  std::uint64_t digest = 14695981039346656037U;
  const auto add = [&](const Bytes& bytes) {
    for (const std::byte byte : bytes) {
      digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211U;
    }
  };
  for_each_scheme([&](const Scheme& scheme) {
    for (const DType dtype : kFloats) {
      const Packed made = quantized(scheme, hard_rows(scheme, dtype, scheme.block + 5));
      add(made.codes);
      add(made.scales);
      add(made.zero_points);
    }
  });
  EXPECT_EQ(digest, 240965418869512855U);
}

// The register in which a program, or a library linked with -ffast-math, turns subnormals to zero.
#if defined(__x86_64__)
constexpr std::uint64_t kFlushToZero = 0x8040;  // results, and operands

std::uint64_t control_word() {
  return _mm_getcsr();
}

void set_control_word(std::uint64_t word) {
  _mm_setcsr(static_cast<unsigned>(word));
}
#elif defined(__aarch64__)
constexpr std::uint64_t kFlushToZero = std::uint64_t{1} << 24;

std::uint64_t control_word() {
  return __builtin_aarch64_get_fpcr();
}

void set_control_word(std::uint64_t word) {
  __builtin_aarch64_set_fpcr(static_cast<unsigned>(word));
}
#else
constexpr std::uint64_t kFlushToZero = 0;  // not known

std::uint64_t control_word() {
  return 0;
}

void set_control_word(std::uint64_t /*word*/) {}
#endif

TEST(QuantizeRows, DoNotDependOnTheFloatingPointEnvironment) {
  for (const Scheme& scheme :
       {Scheme{4, 32, true, 5}, Scheme{4, 32, true, 0}, Scheme{8, 16, false, 0, DType::kFloat16}}) {
    for (const DType dtype : kFloats) {
      const Rows rows = hard_rows(scheme, dtype, 77);
      QuantizationError error;
      const Packed wanted = quantized(scheme, rows, &error);
      const auto expect_same = [&](const char* what) {
        for (const QuantizePath path : paths()) {
          QuantizationError again;
          EXPECT_EQ(quantized(scheme, rows, &again, path), wanted) << what;
          EXPECT_EQ(again.differences.value(), error.differences.value()) << what;
        }
      };
      const std::uint64_t before = control_word();
      set_control_word(before | kFlushToZero);
      expect_same("flush to zero");
      EXPECT_EQ(control_word() & kFlushToZero, kFlushToZero);
      set_control_word(before);
      for (const int mode : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD}) {
        ASSERT_EQ(std::fesetround(mode), 0);
        expect_same("another rounding mode");
        EXPECT_EQ(std::fegetround(), mode);
      }
      ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    }
  }
}

TEST(QuantizeRows, DoNotDependOnHowAMatrixIsSplit) {
  const Scheme scheme{4, 32, true, 5};
  HardValues values(5);
  const Rows rows = values.matrix(DType::kBFloat16, 67, 3 * 32 + 7);
  QuantizationError whole_error;
  const Packed whole = quantized(scheme, rows, &whole_error);
  for (const std::uint64_t step : {1U, 3U, 16U, 50U}) {
    Packed joined;
    QuantizationError sum;
    for (std::uint64_t first = rows.count(); first > 0;) {  // from the last rows to the first
      const std::uint64_t count = std::min<std::uint64_t>(step, first);
      first -= count;
      const auto begin =
          rows.values.begin() + static_cast<std::ptrdiff_t>(first * rows.row_bytes());
      const Rows part{rows.dtype, rows.columns,
                      Bytes(begin, begin + static_cast<std::ptrdiff_t>(count * rows.row_bytes()))};
      QuantizationError error;
      const Packed packed = quantized(scheme, part, &error);
      sum.add(error);
      const auto put_before = [](Bytes& all, const Bytes& more) {
        all.insert(all.begin(), more.begin(), more.end());
      };
      put_before(joined.codes, packed.codes);
      put_before(joined.scales, packed.scales);
      put_before(joined.zero_points, packed.zero_points);
    }
    EXPECT_EQ(joined, whole) << step;
    EXPECT_EQ(sum.differences.value(), whole_error.differences.value()) << step;
    EXPECT_EQ(sum.values.value(), whole_error.values.value()) << step;
  }
}

TEST(QuantizeRows, TakeMatricesOfAnyShape) {
  const Scheme scheme{4, 16, true, 5};
  EXPECT_EQ(quantized(scheme, rows_of({}, 0)), Packed());
  EXPECT_EQ(quantized(scheme, rows_of({}, 100)), Packed());
  for (const std::uint32_t columns : {1U, 2U, 15U, 17U, 1000U}) {
    for (const std::uint32_t count : {1U, 2U, 1500U}) {
      HardValues values(columns);
      const Rows rows = values.matrix(DType::kFloat16, count, columns);
      ASSERT_EQ(quantized(scheme, rows), expected(scheme, rows)) << count << " x " << columns;
    }
  }
}

TEST(QuantizeRows, KeepAValueThatIsAloneInItsBlock) {
  for_each_scheme([](const Scheme& scheme) {
    if (scheme.scales != DType::kFloat32) {
      return;
    }
    for (const float value : {1.0F, -1.0F, 0.3F, 3e38F, -3e38F, 1e-30F}) {
      const Packed packed = quantized(scheme, rows_of({value}, 1));
      float back = 0;
      dequantize_rows(scheme, 1, {packed.codes, packed.scales, packed.zero_points},
                      std::span(&back, 1));
      EXPECT_NEAR(back / value, 1, 3e-7) << scheme_text(scheme) << " " << value;
    }
  });
}

TEST(QuantizeRows, AreRefusedAtTheFirstValueThatIsNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const DType dtype : kFloats) {
    for (const QuantizePath path : paths()) {
      for (const std::uint32_t steps : {0U, 5U}) {
        const Scheme scheme{4, 32, true, steps};
        std::vector<float> values(40UL * 100, 0.5F);
        Packed out;
        values[39 * 100 + 99] = -kInf;
        EXPECT_THAT(
            try_quantize(scheme, rows_of(values, 100, dtype), out, nullptr, path),
            FailsWith(ErrorCode::kUnsupported,
                      "tensor 'w': row 39, column 99 is -inf, which no code can represent"));
        values[33 * 100 + 98] = kInf;
        EXPECT_THAT(try_quantize(scheme, rows_of(values, 100, dtype), out, nullptr, path),
                    FailsWith(ErrorCode::kUnsupported, "row 33, column 98 is inf"));
        values[3 * 100 + 17] = std::numeric_limits<float>::quiet_NaN();
        const Status status = try_quantize(scheme, rows_of(values, 100, dtype), out, nullptr, path);
        EXPECT_THAT(status, FailsWith(ErrorCode::kUnsupported, "row 3, column 17 is NaN"));
        ASSERT_TRUE(!status && status.error().details);
        EXPECT_EQ(status.error().details->remedies,
                  (std::vector<Remedy>{{RemedyOption::kKeepFloat, "w", "not to quantize it"}}));
      }
    }
  }
}

TEST(QuantizeRows, SayWhichRowOfTheMatrixABatchBeginsWith) {
  std::vector<float> values(64, 1);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const Rows rows = rows_of(values, 32);
  const Scheme scheme{8, 32, false, 0};
  Packed out = room_for(scheme, 2, 32);
  EXPECT_THAT(quantize_rows(scheme,
                            {.dtype = rows.dtype,
                             .columns = rows.columns,
                             .values = rows.values,
                             .name = "head",
                             .first_row = 1'000'000},
                            {out.codes, out.scales, {}}),
              FailsWith(ErrorCode::kUnsupported, "tensor 'head': row 1000001, column 8 is NaN"));
}

TEST(QuantizeRows, AreRefusedIfAScaleIsTooLargeForItsType) {
  std::vector<float> values(3UL * 64, 1);
  values[64 + 50] = 1e6F;
  for (const QuantizePath path : paths()) {
    Packed out;
    EXPECT_THAT(
        try_quantize({4, 32, true, 0, DType::kFloat16}, rows_of(values, 64), out, nullptr, path),
        FailsWith(ErrorCode::kUnsupported,
                  "row 1: the block at column 32 needs a scale that is too large for float16"));
    EXPECT_THAT(
        try_quantize({8, 32, true, 0, DType::kFloat16}, rows_of(values, 64), out, nullptr, path),
        IsOk());
  }
}

std::vector<float> gaussian(std::size_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal(0, 0.02);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(),
                [&] { return static_cast<float>(normal(generator)); });
  return values;
}

double error_of(const Scheme& scheme, const Rows& rows) {
  QuantizationError error;
  (void)quantized(scheme, rows, &error);
  return 100 * error.relative_rms();
}

TEST(QuantizeRows, LoseLittleOfGaussianWeights) {
  const Rows rows = rows_of(gaussian(512UL * 2048), 2048, DType::kBFloat16);
  const double at_32 = error_of({4, 32, true, 5}, rows);
  const double at_64 = error_of({4, 64, true, 5}, rows);
  EXPECT_LE(at_32, 7.71);
  EXPECT_LE(at_64, 8.79);
  EXPECT_GT(at_32, 7.6);
  EXPECT_LT(error_of({4, 32, true, 9}, rows), at_32);
  EXPECT_LT(at_32, error_of({4, 32, true, 0}, rows));
  EXPECT_LT(error_of({4, 32, false, 5}, rows), error_of({4, 32, false, 0}, rows));
  EXPECT_LT(error_of({8, 128, false, 0}, rows), 0.66);
}

TEST(QuantizationError, IsThatOfTheDequantizedValues) {
  for (const Scheme& scheme : {Scheme{4, 32, true, 5}, Scheme{4, 64, false, 0, DType::kBFloat16},
                               Scheme{8, 16, true, 3, DType::kFloat16}}) {
    const Rows rows = rows_of(gaussian(100UL * 70), 70, DType::kFloat16);
    QuantizationError error;
    const Packed packed = quantized(scheme, rows, &error);
    const std::vector<float> values = rows.floats();
    std::vector<float> back(values.size());
    dequantize_rows(scheme, 70, {packed.codes, packed.scales, packed.zero_points}, back);
    double differences = 0;
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      differences += std::pow(static_cast<double>(values[i]) - static_cast<double>(back[i]), 2);
      squares += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_NEAR(error.differences.value() / differences, 1, 1e-5);
    EXPECT_NEAR(error.values.value() / squares, 1, 1e-5);
  }
  EXPECT_EQ(QuantizationError().relative_rms(), 0);
}

TEST(DequantizeRows, GiveCodeMinusZeroPointTimesScale) {
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes out;
    for (const int value : values) {
      out.push_back(static_cast<std::byte>(value));
    }
    return out;
  };
  Bytes codes(2 * 2 * 8, std::byte{0x88});
  codes[0] = std::byte{0x1f};      // row 0: 15, 1
  codes[3 * 8] = std::byte{0x05};  // row 1, second block: 5
  std::vector<float> out(2 * 17);
  const Scheme scheme{4, 16, true, 0, DType::kFloat16};
  dequantize_rows(scheme, 17,
                  {codes, bytes({0, 0x3c, 0, 0x40, 0, 0xc0, 1, 0}), bytes({0x82, 0x38})}, out);
  EXPECT_EQ(out[0], 13);
  EXPECT_EQ(out[1], -1);
  EXPECT_EQ(out[2], 6);
  EXPECT_EQ(out[16], 0);
  EXPECT_EQ(out[17], 0);
  EXPECT_EQ(out[33], 2 * 0x1p-24F);  // a subnormal scale
  std::vector<float> symmetric(1);
  dequantize_rows({8, 16, false, 0, DType::kBFloat16}, 1,
                  {Bytes(16, std::byte{0xff}), bytes({0x80, 0xbf}), {}}, symmetric);
  EXPECT_EQ(symmetric[0], -127);
}

}  // namespace
}  // namespace onnx_external
