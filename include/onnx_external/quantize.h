// Defines the schemes and the options for quantizing weights, in blocks, to codes of 4 or 8 bits.
// docs/quantize.md states the rule by which values become codes, and how the codes of an already
// quantized checkpoint are kept.
//
// Everything here is a plain value or a pure function, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The scheme by which the rows of a matrix become codes. A value w is stored as a code q, which
// represents w = (q - z) * scale. Each block of consecutive columns has its own scale and zero
// point z.
struct Scheme {
  std::uint32_t bits = 4;    // bits of a code: 4 or 8; kept codes may also have 2
  std::uint32_t block = 64;  // columns that share a scale: a power of two, 16 to 256
  // True if zero points are stored. Otherwise the scheme is symmetric: z = 2^(bits-1) everywhere.
  bool zero_points = true;
  // The number of scales that are tried for each block; the scale with the smallest squared error
  // is used. With 0, each value is rounded to the nearest code, which gives the same bytes as ONNX
  // Runtime's own quantizer. Other values must be odd.
  std::uint32_t steps = 5;
  DType scales = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  // True if codes, scales and zero points are the checkpoint's own (KeepCodes). In this case
  // `steps` is 0.
  bool kept = false;
  // For kept codes only: instead of a zero point, each block has a term t, of the type of the
  // scales, and w = (q - 2^(bits-1)) * scale + t. A matrix product adds t times the sum of the
  // block's inputs.
  bool terms = false;

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

inline constexpr std::uint32_t kMinQuantizedBlock = 16;
inline constexpr std::uint32_t kMaxQuantizedBlock = 256;
inline constexpr std::uint32_t kMaxSearchSteps = 33;
// A matrix with more columns stays in float, because whole rows are held in memory.
inline constexpr std::int64_t kMaxQuantizedColumns = std::int64_t{1} << 20;

// Returns the scheme that "int4" or "int8" means: int4/64 with zero points and 5 steps, and
// int8/128, symmetric and nearest. Requires: bits is 4 or 8.
[[nodiscard]] Scheme default_scheme(std::uint32_t bits);

// Fails with kInvalidArgument if a field has a value that is not listed above.
[[nodiscard]] Status check_scheme(const Scheme& scheme);

// "int4/64, zero points, 5 steps"; "int8/128, symmetric, nearest"; "int4/32, terms, kept". Ends
// with the type of the scales, as in ", float16 scales", if it is not float32.
[[nodiscard]] std::string scheme_text(const Scheme& scheme);

// Parses a text such as scheme_text() returns. Parts that are left out are taken from
// default_scheme(): "int4", "int4/32", "int4, symmetric". Fails with kInvalidArgument for anything
// else, for kept codes, and for schemes that check_scheme() rejects.
[[nodiscard]] Result<Scheme> parse_scheme(std::string_view text);

// The type of the head (the matrix that computes the logits) and of embedding tables.
enum class HeadWeights : std::uint8_t {
  kInt4,   // like the layers; requires Scheme::bits to be 4
  kInt8,   // int8, symmetric, nearest, with the block size of the layers
  kFloat,  // unchanged
};

// The nodes that read quantized matrices in the saved model.
enum class QuantizedForm : std::uint8_t {
  kMatMulNBits,       // operators of ONNX Runtime: MatMulNBits, GatherBlockQuantized
  kDequantizeLinear,  // standard ONNX, opset 21 or newer, in the layout that ONNX Runtime fuses
};

// Decides what happens to weights that are quantized in the checkpoint.
enum class KeepCodes : std::uint8_t {
  kNo,          // they are quantized again, like all float weights
  kElseFloat,   // they keep their codes, or become floats if no node supports the codes
  kElseScheme,  // they keep their codes, or else are quantized by QuantizeOptions::scheme
};

// The scheme of the weights whose names in the graph, or whose keys, match a pattern.
struct WeightScheme {
  std::string pattern;  // with * and ? as in a shell; it must match the whole name
  Scheme scheme;

  friend bool operator==(const WeightScheme&, const WeightScheme&) = default;
};

// The options of quantization: what to quantize, and with which schemes.
struct QuantizeOptions {
  Scheme scheme;  // scheme of the layers; `scales` is set to the type of the graph's floats
  HeadWeights head = HeadWeights::kInt8;
  // The precision in which MatMulNBits computes. 0 computes in floats; 4 rounds activations to 8
  // bits, which is several times faster.
  std::uint32_t accuracy_level = 4;
  // Patterns for the names of weights that stay in float, with * and ? as in a shell.
  std::vector<std::string> keep_float = {};
  // Schemes that replace `scheme` and `head` for single weights. If several patterns match a
  // weight, the last one decides. A save fails if a pattern decides nothing.
  std::vector<WeightScheme> weights = {};
  // Matrices with fewer columns or rows stay in float.
  std::int64_t min_columns = 64;
  std::int64_t min_rows = 16;
  QuantizedForm form = QuantizedForm::kMatMulNBits;
  // If not kNo, weights that are floats in the checkpoint stay floats.
  KeepCodes keep = KeepCodes::kNo;

  friend bool operator==(const QuantizeOptions&, const QuantizeOptions&) = default;
};

// Parses "keep" or "keep, SCHEME" into options.keep and options.scheme, and a plain SCHEME into
// options.scheme. Fails like parse_scheme().
[[nodiscard]] Status set_scheme(std::string_view text, QuantizeOptions& options);

// Parses "PATTERN=SCHEME", which is split at the last "=". Fails with kInvalidArgument if a part is
// missing, or like parse_scheme().
[[nodiscard]] Result<WeightScheme> parse_weight_scheme(std::string_view text);

// Fails with kInvalidArgument if an option has an invalid value or options contradict each other.
// Saves call it before they read anything.
[[nodiscard]] Status check_options(const QuantizeOptions& options);

// The scheme of the head and of embedding tables.
// Requires: options.head is not kFloat; check_options(options) succeeds.
[[nodiscard]] Scheme head_scheme(const QuantizeOptions& options);

// "int4", "int8", "float"; "matmulnbits", "qdq": the names in options and documents.
[[nodiscard]] std::string_view head_name(HeadWeights head);
[[nodiscard]] std::string_view form_name(QuantizedForm form);

}  // namespace onnx_external
