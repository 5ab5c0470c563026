#include "tensor/quantize/quantize_rows.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/remedy.h"
#include "base/text.h"
#include "tensor/cast.h"
#include "tensor/quantize/dequantize_rows.h"
#include "tensor/quantize/float_environment.h"

static_assert(FLT_EVAL_METHOD == 0, "the rule rounds every operation to float32");

namespace onnx_external {
namespace {

using Values = std::array<float, kMaxQuantizedBlock>;

// What becomes of a block.
struct BlockCodes {
  float scale = 0;  // as it is stored
  std::array<std::byte, sizeof(float)> scale_bytes{};
  int zero = 0;
  std::array<std::uint8_t, kMaxQuantizedBlock> codes{};
  bool fits = true;  // the scale is finite
};

float clamped(float value, float top) {
  const float positive = value > 0 ? value : 0;
  return positive < top ? positive : top;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// A block that is multiplied by a power of two, so that no sum overflows.
struct Searched {
  float scale;
  int zero;
};
Searched search(const Scheme& scheme, const Values& y, float scale, float low) {
  const float top = static_cast<float>((1 << scheme.bits) - 1) + 0.5F;
  float best_product = 0;
  float best_square = 1;
  int best_zero = 1 << (scheme.bits - 1);
  const float inverse = 1 / scale;
  const int half = static_cast<int>(scheme.steps / 2);
  for (int step = -half; step <= half; ++step) {
    const float factor = half == 0 ? 1.0F : static_cast<float>(1 + 0.12 * step / half);
    const float tried = inverse * factor;
    const int zero = scheme.zero_points ? static_cast<int>(clamped(-low * tried + 0.5F, top))
                                        : 1 << (scheme.bits - 1);
    float product = 0;
    float square = 0;
    for (std::size_t k = 0; k < scheme.block; ++k) {
      const float scaled = y[k] * tried;
      const float code = clamped(scaled + (static_cast<float>(zero) + 0.5F), top);
      const auto centered = static_cast<float>(static_cast<int>(code) - zero);
      product += y[k] * centered;
      square += centered * centered;
    }
    if (product * product * best_square > best_product * best_product * square && square > 0) {
      best_product = product;
      best_square = square;
      best_zero = zero;
    }
  }
  return {best_product / best_square, best_zero};
}

BlockCodes quantize_block(const Scheme& scheme, const Values& x) {
  const float top = static_cast<float>((1 << scheme.bits) - 1);
  const float half = static_cast<float>(1 << (scheme.bits - 1));
  float high = 0;
  float low = 0;
  for (std::size_t k = 0; k < scheme.block; ++k) {
    high = x[k] > high ? x[k] : high;
    low = x[k] < low ? x[k] : low;
  }
  const float largest = high > -low ? high : -low;
  const int exponent =
      std::max<int>(static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23), 1);
  const float up = power_of_two(128 - exponent);
  const float y_high = high * up;
  const float y_low = low * up;
  float scale =
      scheme.zero_points ? (y_high - y_low) / top : (-y_low >= y_high ? y_low : y_high) / -half;
  int zero = scheme.zero_points ? 0 : static_cast<int>(half);
  if (scheme.steps != 0 && scale != 0) {
    Values y{};
    for (std::size_t k = 0; k < scheme.block; ++k) {
      y[k] = x[k] * up;
    }
    const Searched found = search(scheme, y, scale, y_low);
    scale = found.scale;
    zero = found.zero;
  }
  scale = exponent <= 1 ? 0 : scale * power_of_two(exponent - 128);
  BlockCodes out;
  const auto bytes = std::as_writable_bytes(std::span(&scale, 1));
  const auto stored = std::span(out.scale_bytes).first(byte_size(scheme.scales));
  cast_elements(DType::kFloat32, scheme.scales, bytes, stored);
  cast_elements(scheme.scales, DType::kFloat32, stored, bytes);
  if (std::abs(scale) < FLT_MIN) {
    out.scale_bytes = {};
    out.zero = scheme.zero_points ? 0 : static_cast<int>(half);
    out.codes.fill(static_cast<std::uint8_t>(out.zero));
    return out;
  }
  out.scale = scale;
  out.fits = std::isfinite(scale);
  if (scheme.zero_points && scheme.steps == 0) {
    zero = static_cast<int>(clamped(-low / scale + 0.5F, top + 0.5F));
  }
  out.zero = zero;
  const float inverse = 1 / scale;
  for (std::size_t k = 0; k < scheme.block; ++k) {
    const float scaled = x[k] * inverse;
    out.codes[k] =
        static_cast<std::uint8_t>(clamped(scaled + (static_cast<float>(zero) + 0.5F), top + 0.5F));
  }
  return out;
}

Error place_error(const RowBatch& batch, std::uint64_t row, std::uint64_t column,
                  std::string_view what) {
  return error_with(ErrorCode::kUnsupported,
                    fmt::format("tensor {}: row {}, column {} {}", quote(batch.name),
                                batch.first_row + row, column, what),
                    {{RemedyOption::kKeepFloat, std::string(batch.name), "keeps it in float"}});
}

void pack(std::uint32_t bits, std::size_t index, int code, std::byte* out) {
  if (bits == 8) {
    out[index] = static_cast<std::byte>(code);
  } else if (index % 2 == 0) {
    out[index / 2] = static_cast<std::byte>(code);
  } else {
    out[index / 2] |= static_cast<std::byte>(code << 4);
  }
}

}  // namespace

void QuantizationError::add(const QuantizationError& other) {
  differences.add(other.differences);
  values.add(other.values);
}

double QuantizationError::relative_rms() const {
  const double all = values.value();
  return all == 0 ? 0 : std::sqrt(differences.value() / all);
}

bool has_path(QuantizePath path) {
  return path == QuantizePath::kBest || path == QuantizePath::kPortable;
}

Status quantize_rows(const Scheme& scheme, const RowBatch& batch, const PackedRows& out,
                     QuantizationError* error, QuantizePath path) {
  (void)path;
  const DefaultFloatEnvironment environment;
  const std::uint64_t blocks = (batch.columns + scheme.block - 1) / scheme.block;
  const std::size_t block_bytes = std::size_t{scheme.block} * scheme.bits / 8;
  const std::uint64_t zeros_bytes = (blocks * scheme.bits + 7) / 8;
  const std::uint64_t row_bytes = batch.columns * byte_size(batch.dtype);
  const std::uint64_t rows = row_bytes == 0 ? 0 : batch.values.size() / row_bytes;
  for (std::uint64_t row = 0; row < rows; ++row) {
    double difference = 0;
    double square = 0;
    for (std::uint64_t b = 0; b < blocks; ++b) {
      const std::uint64_t first = b * scheme.block;
      const std::size_t count = std::min<std::uint64_t>(scheme.block, batch.columns - first);
      Values x{};
      cast_elements(batch.dtype, DType::kFloat32,
                    batch.values.subspan(row * row_bytes + first * byte_size(batch.dtype),
                                         count * byte_size(batch.dtype)),
                    std::as_writable_bytes(std::span(x).first(count)));
      for (std::size_t k = 0; k < count; ++k) {
        if (!std::isfinite(x[k])) {
          return fail(place_error(batch, row, first + k,
                                  std::isnan(x[k]) ? "is NaN, which no code stands for"
                                                   : "is infinite, which no code stands for"));
        }
      }
      const BlockCodes codes = quantize_block(scheme, x);
      if (!codes.fits) {
        return fail(place_error(batch, row, first,
                                fmt::format("begins a block whose scale is too large for {}",
                                            torch_name(scheme.scales))));
      }
      const std::uint64_t index = row * blocks + b;
      for (std::size_t k = 0; k < scheme.block; ++k) {
        pack(scheme.bits, k, codes.codes[k], out.codes.data() + index * block_bytes);
      }
      std::memcpy(out.scales.data() + index * byte_size(scheme.scales), codes.scale_bytes.data(),
                  byte_size(scheme.scales));
      if (scheme.zero_points) {
        pack(scheme.bits, b, codes.zero, out.zero_points.data() + row * zeros_bytes);
      }
      for (std::size_t k = 0; k < count; ++k) {
        const double value = static_cast<double>(x[k]);
        const double off =
            value -
            static_cast<double>(static_cast<float>(codes.codes[k] - codes.zero) * codes.scale);
        difference += off * off;
        square += value * value;
      }
    }
    if (error != nullptr) {
      error->differences.add(difference);
      error->values.add(square);
    }
  }
  return {};
}

}  // namespace onnx_external
