// Defines the schemes and the options for block-wise quantization of weights to codes of 4 or 8
// bits. docs/quantize.md specifies how codes are computed, and how the codes of a quantized
// checkpoint are kept.
//
// All types are plain values, and all functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/dtype.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The scheme for quantizing the rows of a matrix. A value w is stored as a code q, such that w is
// approximately (q - z) * scale. Each block of consecutive columns has its own scale and zero point
// z.
struct Scheme {
  std::uint32_t bits = 4;    // bits per code: 4 or 8; kept codes may also have 2
  std::uint32_t block = 64;  // columns that share a scale: a power of two, 16 to 256
  // True if zero points are stored. If false, the scheme is symmetric, with z = 2^(bits-1) in all
  // blocks.
  bool zero_points = true;
  // The number of scales that are tried for each block; the scale with the smallest squared error
  // is used. With 0, each value is rounded to the nearest code, which gives the same bytes as ONNX
  // Runtime's own quantizer. Other values must be odd.
  std::uint32_t steps = 5;
  DType scales = DType::kFloat32;  // kFloat32, kFloat16 or kBFloat16
  // True if codes, scales and zero points are taken from the checkpoint (KeepCodes). In this case
  // `steps` is 0.
  bool kept = false;
  // True if each block has an additive term t instead of a zero point, which only kept codes may
  // have. In this case w = (q - 2^(bits-1)) * scale + t, where t has the type of the scales. A
  // matrix product then adds t times the sum of the block's inputs.
  bool terms = false;

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

inline constexpr std::uint32_t kMinQuantizedBlock = 16;
inline constexpr std::uint32_t kMaxQuantizedBlock = 256;
inline constexpr std::uint32_t kMaxSearchSteps = 33;
// The maximum number of columns of a matrix that is quantized; there is a limit because whole rows
// are held in memory.
inline constexpr std::int64_t kMaxQuantizedColumns = std::int64_t{1} << 20;

// Returns the scheme that "int4" or "int8" stands for: int4 in blocks of 64 columns with zero
// points and 5 steps, or symmetric int8 in blocks of 128 columns with 0 steps. Requires: bits is 4
// or 8.
[[nodiscard]] Scheme default_scheme(std::uint32_t bits);

// Fails with kInvalidArgument if a field has a value that is not listed above.
[[nodiscard]] Status check_scheme(const Scheme& scheme);

// Returns a scheme as text, such as "int4/64, zero points, 5 steps", "int8/128, symmetric, nearest"
// or "int4/32, terms, kept". If the type of the scales is not float32, the text ends with it, as in
// ", float16 scales".
[[nodiscard]] std::string scheme_text(const Scheme& scheme);

// Parses a text in the form that scheme_text() returns. In texts such as "int4", "int4/32" and
// "int4, symmetric", missing parts are taken from default_scheme(). Fails with kInvalidArgument for
// any other text, for kept codes, and for schemes that check_scheme() rejects.
[[nodiscard]] Result<Scheme> parse_scheme(std::string_view text);

// The type of the head (the matrix that computes the logits) and of embedding tables.
enum class HeadWeights : std::uint8_t {
  kInt4,   // the scheme of the layers; requires Scheme::bits to be 4
  kInt8,   // symmetric int8 with 0 steps and the block size of the layers
  kFloat,  // unchanged
};

// The nodes that read quantized matrices in the saved model.
enum class QuantizedForm : std::uint8_t {
  kMatMulNBits,       // operators of ONNX Runtime: MatMulNBits, GatherBlockQuantized
  kDequantizeLinear,  // standard ONNX, opset 21 or newer, in the layout that ONNX Runtime fuses
};

// Decides what happens to weights that are quantized in the checkpoint.
enum class KeepCodes : std::uint8_t {
  kNo,          // dequantized, then quantized like all float weights
  kElseFloat,   // codes are kept; if no operator supports them, weights become floats
  kElseScheme,  // codes are kept; if no operator supports them, QuantizeOptions::scheme is used
};

// The scheme of the weights whose names in the graph, or whose keys, match a pattern.
struct WeightScheme {
  std::string pattern;  // with * and ? as in a shell; it must match the whole name
  Scheme scheme;

  friend bool operator==(const WeightScheme&, const WeightScheme&) = default;
};

// The options of quantization: what to quantize, and with which schemes.
struct QuantizeOptions {
  Scheme scheme;  // for the layers; saving sets `scales` to the graph's float type
  HeadWeights head = HeadWeights::kInt8;
  // The precision in which MatMulNBits computes. 0 computes in floats; 4 rounds activations to 8
  // bits, which is several times faster.
  std::uint32_t accuracy_level = 4;
  // Patterns for the names of weights that are not quantized, with * and ? as in a shell.
  std::vector<std::string> keep_float = {};
  // Schemes that replace `scheme` and `head` for single weights. If several patterns match a
  // weight, the last one is used. A save fails if a pattern is not used for any weight.
  std::vector<WeightScheme> weights = {};
  // Matrices with fewer columns or rows are not quantized.
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
// missing. If the scheme is invalid, fails like parse_scheme().
[[nodiscard]] Result<WeightScheme> parse_weight_scheme(std::string_view text);

// Fails with kInvalidArgument if an option has an invalid value or options contradict each other.
// Saves call it before they read anything.
[[nodiscard]] Status check_options(const QuantizeOptions& options);

// Returns the scheme for the head and for embedding tables. Requires: options.head is not kFloat;
// check_options(options) succeeds.
[[nodiscard]] Scheme head_scheme(const QuantizeOptions& options);

// Return the names that options and JSON documents use: "int4", "int8" or "float" for the head,
// "matmulnbits" or "qdq" for the form.
[[nodiscard]] std::string_view head_name(HeadWeights head);
[[nodiscard]] std::string_view form_name(QuantizedForm form);

}  // namespace onnx_external
