// Implements the rule of docs/quantize.md literally, one value after the other.
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "onnx_external/quantize.h"
#include "tensor/cast.h"

namespace onnx_external {

struct ReferenceBlock {
  float scale = 0;  // as it is stored
  int zero = 0;
  std::vector<int> codes;
};

class ReferenceQuantizer {
 public:
  explicit ReferenceQuantizer(const Scheme& scheme) : scheme_(scheme) {}

  // Requires: finite values, `scheme.block` of them.
  [[nodiscard]] ReferenceBlock quantize(const std::vector<float>& x) const {
    const float high = std::max(0.0F, *std::max_element(x.begin(), x.end()));
    const float low = std::min(0.0F, *std::min_element(x.begin(), x.end()));
    const float largest = std::max(high, -low);
    if (largest < 2 * FLT_MIN) {
      return all_zero();
    }
    int exponent = 0;
    (void)std::frexp(largest, &exponent);  // largest < 2^exponent
    const float unit = std::ldexp(1.0F, 2 - exponent);
    float scale = first_scale(high * unit, low * unit);
    int zero = middle();
    if (scheme_.steps != 0) {
      std::vector<float> y = x;
      std::transform(y.begin(), y.end(), y.begin(), [&](float value) { return value * unit; });
      search(y, low * unit, scale, zero);
    }
    scale = stored(std::ldexp(scale, exponent - 2));
    if (std::abs(scale) < FLT_MIN) {
      return all_zero();
    }
    if (scheme_.zero_points && scheme_.steps == 0) {
      zero = code(-low / scale + 0.5F);
    }
    ReferenceBlock block{scale, zero, {}};
    const float inverse = 1 / scale;
    for (const float value : x) {
      block.codes.push_back(code(product(value, inverse) + (static_cast<float>(zero) + 0.5F)));
    }
    return block;
  }

 private:
  // Returns a product that no compiler fuses with an addition.
  static float product(float a, float b) {
    volatile float rounded = a * b;
    return rounded;
  }

  [[nodiscard]] int middle() const { return 1 << (scheme_.bits - 1); }
  [[nodiscard]] int top() const { return (1 << scheme_.bits) - 1; }

  [[nodiscard]] ReferenceBlock all_zero() const {
    const int zero = scheme_.zero_points ? 0 : middle();
    return {scheme_.zero_points ? 0.0F : -0.0F, zero, std::vector<int>(scheme_.block, zero)};
  }

  // Truncates to a code.
  [[nodiscard]] int code(float value) const {
    return static_cast<int>(std::clamp(value, 0.0F, static_cast<float>(top())));
  }

  [[nodiscard]] float first_scale(float high, float low) const {
    if (scheme_.zero_points) {
      return (high - low) / static_cast<float>(top());
    }
    return (-low >= high ? low : high) / static_cast<float>(-middle());
  }

  void search(const std::vector<float>& y, float low, float& scale, int& zero) const {
    const float inverse = 1 / scale;
    float best_xc = 0;
    float best_cc = 1;
    const int half = static_cast<int>(scheme_.steps / 2);
    for (int step = -half; step <= half; ++step) {
      const auto factor = static_cast<float>(half == 0 ? 1 : 1 + 0.1 * step / half);
      const float tried = inverse * factor;
      const int z = scheme_.zero_points ? code(product(-low, tried) + 0.5F) : middle();
      float xc = 0;
      float cc = 0;
      for (const float value : y) {
        const auto c =
            static_cast<float>(code(product(value, tried) + (static_cast<float>(z) + 0.5F)) - z);
        xc += product(value, c);
        cc += product(c, c);
      }
      if (product(xc, xc) * best_cc > product(best_xc, best_xc) * cc && cc > 0) {
        best_xc = xc;
        best_cc = cc;
        zero = z;
      }
    }
    scale = best_xc / best_cc;
  }

  [[nodiscard]] float stored(float scale) const {
    std::vector<std::byte> bytes(byte_size(scheme_.scales));
    const auto floats = std::as_writable_bytes(std::span(&scale, 1));
    cast_elements(DType::kFloat32, scheme_.scales, floats, bytes);
    cast_elements(scheme_.scales, DType::kFloat32, bytes, floats);
    return scale;
  }

  Scheme scheme_;
};

}  // namespace onnx_external
