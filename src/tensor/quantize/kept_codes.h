// Keeps the codes of a quantized checkpoint: decides how its matrices become what ONNX Runtime's
// MatMulNBits takes, and makes the bytes. Nothing is rounded except scales and terms, to their
// type.
//
// Plain values and pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "onnx_external/quantize.h"
#include "onnx_external/result.h"
#include "tensor/quantize/quantize_rows.h"

namespace onnx_external {

// The values that the codes of a checkpoint represent.
enum class CodeValues : std::uint8_t {
  kUnsigned,  // 0 to 2^bits - 1
  kE2M1,      // 4 bits: the values of float4 e2m1
};

// The offsets that are subtracted from a code, and added to a weight.
enum class CodeZeros : std::uint8_t {
  kMiddle,    // w = (q - 2^(bits-1)) * s; of kE2M1: w = value * s
  kIntegers,  // w = (q - z) * s, and each z is an integer from 0 to 2^bits - 1
  kAny,       // w = (q - z) * s + m, where z is any number
};

// A matrix as a checkpoint has it. Columns share a scale in groups.
struct StoredCodes {
  CodeValues values = CodeValues::kUnsigned;
  CodeZeros zeros = CodeZeros::kMiddle;
  std::uint32_t bits = 4;  // 1 to 8
  std::int64_t columns = 0;
  std::int64_t group = 0;  // columns of a group; the last one may have fewer
  bool in_order = true;    // false: the columns of a group do not follow each other (act-order)
  double zero = 0;         // z of every group if StoredRows has none; not for kMiddle
};

// The form in which the matrix is kept.
struct KeptForm {
  StoredCodes stored;
  Scheme scheme;  // `kept`
};

// Chooses the nearest form that computes the same: codes of 2, 4 and 8 bits keep their bits, others
// get the next of these, and e2m1 8 bits with doubled values. Blocks are the groups; the largest
// power of two that divides them, up to 256, if no node has such blocks. Zero points that are not
// integers, and minima, become terms. `scales`: the type of scales and terms. kUnsupported, with
// the reason as its text, if there is no such form. Requires: 1 to 8 bits; columns and group are
// positive.
[[nodiscard]] Result<KeptForm> kept_form(const StoredCodes& stored, DType scales);

// Returns the columns in the order of their groups, which keeps the order within a group; empty if
// they already have that order. `groups`: of each column. kUnsupported if a group has another
// number of columns than `group` (the last one: what is left), since blocks are equally long.
[[nodiscard]] Result<std::vector<std::int32_t>> order_by_group(std::span<const std::int32_t> groups,
                                                               std::int64_t group);

// Rows of a matrix in the checkpoint's terms, row-major. Each has a byte for each column, and a
// scale and a zero for each group.
struct StoredRows {
  std::span<const std::uint8_t> codes;  // empty: their bytes come from elsewhere (keeps_bytes())
  std::span<const double> scales;
  std::span<const double> zeros = {};   // empty: StoredCodes::zero
  std::span<const double> minima = {};  // m of kAny; empty: 0
};

// Writes the parts of the rows (packed_layout.h). `order`: of order_by_group(), or empty.
// kUnsupported for a scale or term that is too large for its type; kCorrupt for a zero point that
// is not one of kIntegers. `first_row` is for errors. Requires: kept_form() made the form; the
// sizes match; each code is below 2^bits.
[[nodiscard]] Status keep_rows(const KeptForm& form, std::span<const std::int32_t> order,
                               std::uint64_t first_row, const StoredRows& rows,
                               const PackedRows& out);

// Returns whether the bytes of codes that lie in rows of ceil(columns * bits / 8) bytes, the first
// in the low bits, are those that the form stores.
[[nodiscard]] bool keeps_bytes(const KeptForm& form);

}  // namespace onnx_external
