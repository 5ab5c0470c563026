// Quantizes rows of a matrix: values to codes, scales and zero points.
//
// The bytes of a row depend on nothing but its values and the scheme: not on the other rows, the
// processor, the compiler, or the rounding mode of the calling thread. docs/quantize.md has the
// rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "tensor/quantize/exact_sum.h"

namespace onnx_external {

// The error that quantizing causes. The sums do not depend on how a matrix is split into batches.
struct QuantizationError {
  ExactSum differences;  // of (value - dequantized value)^2
  ExactSum values;       // of value^2

  void add(const QuantizationError& other);
  // The root of the quotient; 0 for no values, or only zeros.
  [[nodiscard]] double relative_rms() const;
};

// The implementations. All give the same bytes.
enum class QuantizePath : std::uint8_t {
  kBest,  // the fastest one that the processor has
  kPortable,
  kAvx2,
  kAvx512,
};
[[nodiscard]] bool has_path(QuantizePath path);

// Whole rows of a matrix, row-major and contiguous, little-endian. Needs no alignment.
struct RowBatch {
  DType dtype = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  std::uint64_t columns = 0;
  std::span<const std::byte> values;
  // For errors only: the name of the matrix, and the index of the first row here.
  std::string_view name;
  std::uint64_t first_row = 0;
};

// The destinations of the rows of the three tensors: PackedPart::row_bytes for each row of the
// batch. Needs no alignment. `zero_points` is empty if the scheme is symmetric.
struct PackedRows {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> zero_points;
};

// Adds to `error`, unless it is null. kUnsupported for NaN, infinity, and a scale that is too large
// for its type, with row and column and the remedy kKeepFloat; the output is then undefined, and
// `error` may have changed.
// Requires: check_scheme(scheme) succeeds; has_path(path); a dtype as above; the sizes match
// packed_layout(); no overlap.
[[nodiscard]] Status quantize_rows(const Scheme& scheme, const RowBatch& batch,
                                   const PackedRows& out, QuantizationError* error = nullptr,
                                   QuantizePath path = QuantizePath::kBest);

}  // namespace onnx_external
