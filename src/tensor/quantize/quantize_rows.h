// Quantizes rows of a matrix, that is, converts their values to codes, scales and zero points.
//
// The bytes of a row depend only on its values and the scheme. They do not depend on other rows,
// the processor, the compiler, or the rounding mode of the calling thread. docs/quantize.md
// specifies the algorithm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "tensor/quantize/exact_sum.h"

namespace onnx_external {

// The error of quantization, as sums that do not depend on how a matrix is split into batches.
struct QuantizationError {
  ExactSum differences;  // sum of (value - dequantized value)^2
  ExactSum values;       // sum of value^2

  void add(const QuantizationError& other);
  // Returns the square root of differences / values, or 0 if there are no values or only zeros.
  [[nodiscard]] double relative_rms() const;
};

// The implementations. All of them produce the same bytes.
enum class QuantizePath : std::uint8_t {
  kBest,  // the fastest implementation that the processor supports
  kPortable,
  kAvx2,
  kAvx512,
};
[[nodiscard]] bool has_path(QuantizePath path);

// Whole rows of a matrix, row-major, contiguous and little-endian. `values` may have any alignment.
struct RowBatch {
  DType dtype = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  std::uint64_t columns = 0;
  std::span<const std::byte> values;
  // For error messages, the name of the matrix, and the index of the batch's first row in the
  // matrix.
  std::string_view name;
  std::uint64_t first_row = 0;
};

// The destinations of the rows of the three tensors. Each span has PackedPart::row_bytes bytes for
// each row of the batch, and may have any alignment. `zero_points` is empty if the scheme is
// symmetric.
struct PackedRows {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> zero_points;
};

// Quantizes the rows of a batch. Adds their quantization error to `error`, unless `error` is null.
// Fails with kUnsupported for a NaN, an infinity, or a scale that is too large for its type; the
// message states row and column, and the remedy is kKeepFloat. After an error the output is
// undefined, and `error` may have changed. Requires: check_scheme(scheme) succeeds; has_path(path)
// is true; RowBatch::dtype is a supported type; the sizes match packed_layout(); the spans do not
// overlap.
[[nodiscard]] Status quantize_rows(const Scheme& scheme, const RowBatch& batch,
                                   const PackedRows& out, QuantizationError* error = nullptr,
                                   QuantizePath path = QuantizePath::kBest);

}  // namespace onnx_external
