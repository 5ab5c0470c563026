// Makes matrices of difficult values, and quantizes them with quantize_rows().
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "support/result_matchers.h"
#include "tensor/cast.h"
#include "tensor/quantize/packed_layout.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

using Bytes = std::vector<std::byte>;

struct Packed {
  Bytes codes;
  Bytes scales;
  Bytes zero_points;

  friend bool operator==(const Packed&, const Packed&) = default;
};

// A matrix in memory.
struct Rows {
  DType dtype = DType::kFloat32;
  std::uint64_t columns = 0;
  Bytes values;

  [[nodiscard]] std::uint64_t row_bytes() const { return columns * byte_size(dtype); }
  [[nodiscard]] std::uint64_t count() const {
    return row_bytes() == 0 ? 0 : values.size() / row_bytes();
  }
  [[nodiscard]] std::vector<float> floats() const {
    std::vector<float> out(values.size() / byte_size(dtype));
    cast_elements(dtype, DType::kFloat32, values, std::as_writable_bytes(std::span(out)));
    return out;
  }
};

inline Rows rows_of(const std::vector<float>& values, std::uint64_t columns,
                    DType dtype = DType::kFloat32) {
  Rows rows{dtype, columns, Bytes(values.size() * byte_size(dtype))};
  cast_elements(DType::kFloat32, dtype, std::as_bytes(std::span(values)), rows.values);
  return rows;
}

inline Packed room_for(const Scheme& scheme, std::uint64_t rows, std::uint64_t columns) {
  const auto layout =
      packed_layout(scheme, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns));
  EXPECT_THAT(layout, IsOk());
  return {Bytes(layout->codes.bytes, std::byte{0xaa}), Bytes(layout->scales.bytes, std::byte{0xaa}),
          Bytes(layout->zero_points.bytes, std::byte{0xaa})};
}

inline Status try_quantize(const Scheme& scheme, const Rows& rows, Packed& out,
                           QuantizationError* error = nullptr,
                           QuantizePath path = QuantizePath::kBest) {
  out = room_for(scheme, rows.count(), rows.columns);
  return quantize_rows(
      scheme, {.dtype = rows.dtype, .columns = rows.columns, .values = rows.values, .name = "w"},
      {out.codes, out.scales, out.zero_points}, error, path);
}

inline Packed quantized(const Scheme& scheme, const Rows& rows, QuantizationError* error = nullptr,
                        QuantizePath path = QuantizePath::kBest) {
  Packed out;
  EXPECT_THAT(try_quantize(scheme, rows, out, error, path), IsOk());
  return out;
}

inline std::vector<QuantizePath> paths() {
  std::vector<QuantizePath> found;
  for (const auto path : {QuantizePath::kPortable, QuantizePath::kAvx2, QuantizePath::kAvx512}) {
    if (has_path(path)) {
      found.push_back(path);
    }
  }
  return found;
}

// Generates values that are the same on all machines.
class HardValues {
 public:
  explicit HardValues(std::uint32_t seed) : state_(seed) {}

  // Returns a value in about [-1, 1]; most are small.
  float ordinary() { return uniform() * uniform(); }
  float uniform() { return static_cast<float>(next() >> 8) / 8388608.0F - 1; }
  std::uint32_t next() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ ^ (state_ >> 15);
  }

  // Returns a value for a row of this kind that is finite in the 16-bit types as well.
  float of_kind(std::uint32_t kind, std::uint32_t column) {
    const float value = ordinary();
    switch (kind % 16) {
      case 0:
        return 0;
      case 1:
        return -0.0F;
      case 2:
        return std::abs(value) + 0.01F;
      case 3:
        return -std::abs(value) - 0.01F;
      case 4:  // ties
        return static_cast<float>(static_cast<int>(next() % 33) - 16) * 0.5F;
      case 5:  // subnormals of float32, and the binades above them
        return value * std::ldexp(1.0F, -126 + static_cast<int>(next() % 8));
      case 6:  // subnormals of float16, and the binades above them
        return value * std::ldexp(1.0F, -14 - static_cast<int>(next() % 16));
      case 7:
        return column % 2 == 0 ? 65504.0F : -65504.0F;
      case 8:
        return value * std::ldexp(1.0F, static_cast<int>(next() % 148) - 132);
      case 9:  // one value much larger than the others
        return column % 37 == 5 ? 60000.0F : value;
      case 10:
        return column % 16 == 3 ? value : 0;
      case 11:
        return 0.1F;
      case 12:
        return column % 2 == 0 ? 1.0F : -1.0F;
      case 13:  // a huge range
        return column % 3 == 0 ? 1e-38F : value * 3000;
      default:
        return value;
    }
  }

  // Returns rows of all kinds. In float32, some rows exceed the range of the other types.
  Rows matrix(DType dtype, std::uint32_t rows, std::uint32_t columns) {
    std::vector<float> values;
    for (std::uint32_t row = 0; row < rows; ++row) {
      for (std::uint32_t column = 0; column < columns; ++column) {
        values.push_back(of_kind(row, column));
      }
      if (dtype != DType::kFloat16 && row % 16 == 15) {
        values.back() = row % 32 == 15 ? 3e38F : -3e38F;
        values[values.size() - columns] = 2.5e38F;
      }
    }
    return rows_of(values, columns, dtype);
  }

 private:
  std::uint32_t state_;
};

}  // namespace onnx_external
