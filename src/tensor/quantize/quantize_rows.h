// Quantizes rows of a matrix: converts their values to codes, scales and zero points.
//
// The bytes of a row depend only on its values and the scheme: not on other rows, the processor,
// the compiler, or the rounding mode of the calling thread. docs/quantize.md states the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "tensor/quantize/exact_sum.h"

namespace onnx_external {

// The error that quantization causes. The sums do not depend on how a matrix is split into batches.
struct QuantizationError {
  ExactSum differences;  // sum of (value - dequantized value)^2
  ExactSum values;       // sum of value^2

  void add(const QuantizationError& other);
  // The square root of differences / values; 0 if there are no values, or only zeros.
  [[nodiscard]] double relative_rms() const;
};

// The implementations. All of them produce the same bytes.
enum class QuantizePath : std::uint8_t {
  kBest,  // the fastest one that the processor has
  kPortable,
  kAvx2,
  kAvx512,
};
[[nodiscard]] bool has_path(QuantizePath path);

// Whole rows of a matrix, row-major, contiguous and little-endian. `values` needs no alignment.
struct RowBatch {
  DType dtype = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  std::uint64_t columns = 0;
  std::span<const std::byte> values;
  // For error messages: the name of the matrix, and the index in it of the first row of this batch.
  std::string_view name;
  std::uint64_t first_row = 0;
};

// Where the rows of the three tensors are written: PackedPart::row_bytes for each row of the batch.
// The spans need no alignment. `zero_points` is empty if the scheme is symmetric.
struct PackedRows {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> zero_points;
};

// Quantizes the rows of a batch. Adds their quantization error to `error`, unless it is null. Fails
// with kUnsupported for a NaN, an infinity, or a scale that is too large for its type; the message
// names row and column, and the remedy is kKeepFloat. The output is then undefined, and `error` may
// have changed. Requires: check_scheme(scheme) succeeds; has_path(path); a dtype as above; the
// sizes match packed_layout(); the spans do not overlap.
[[nodiscard]] Status quantize_rows(const Scheme& scheme, const RowBatch& batch,
                                   const PackedRows& out, QuantizationError* error = nullptr,
                                   QuantizePath path = QuantizePath::kBest);

}  // namespace onnx_external
