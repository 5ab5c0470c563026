// Converts matrices of a quantized checkpoint to the form that ONNX Runtime's MatMulNBits reads,
// without quantizing them again. The form represents the same values, except that scales and terms
// (Scheme::terms) are rounded to their type.
//
// All types are plain values. All functions are pure and may be called from any thread.
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

// The formula for the weight w of a code q with scale s.
enum class CodeZeros : std::uint8_t {
  kMiddle,    // w = (q - 2^(bits-1)) * s; with kE2M1: w = value * s
  kIntegers,  // w = (q - z) * s, where each z is an integer from 0 to 2^bits - 1
  kAny,       // w = (q - z) * s + m, where z is any number
};

// Describes a matrix as it is stored in a checkpoint. The columns of a group share a scale.
struct StoredCodes {
  CodeValues values = CodeValues::kUnsigned;
  CodeZeros zeros = CodeZeros::kMiddle;
  std::uint32_t bits = 4;  // 1 to 8
  std::int64_t columns = 0;
  std::int64_t group = 0;  // columns per group; the last group may have fewer
  bool in_order = true;    // false: the columns of a group are not consecutive (act-order)
  double zero = 0;         // z of all groups if StoredRows has no zeros; not used with kMiddle
};

// The form in which a matrix is saved.
struct KeptForm {
  StoredCodes stored;
  Scheme scheme;  // with Scheme::kept
};

// Chooses the closest form that represents the same values. Codes of 2, 4 and 8 bits keep their
// width, and codes of other widths get the next larger of these widths. Values of e2m1 are doubled
// and become codes of 8 bits. Each group becomes a block. If no node supports blocks of this size,
// the block size is the largest power of two up to 256 that divides the group. Zero points that are
// not integers, and minima, become terms. `scales` is the type of scales and terms. Fails with
// kUnsupported if there is no such form; the message is the reason. Requires: 1 to 8 bits; columns
// and group are positive.
[[nodiscard]] Result<KeptForm> kept_form(const StoredCodes& stored, DType scales);

// Returns the indices of the columns sorted by group, and ascending within each group; empty if the
// columns are already sorted. `groups` has the group of each column. Because blocks have equal
// sizes, the call fails with kUnsupported unless each group has `group` columns and the last group
// has the remaining columns.
[[nodiscard]] Result<std::vector<std::int32_t>> order_by_group(std::span<const std::int32_t> groups,
                                                               std::int64_t group);

// Rows of a matrix that StoredCodes describes, row-major. Each row has one byte for each column,
// and one scale and one zero point for each group.
struct StoredRows {
  std::span<const std::uint8_t> codes;  // empty: the caller copies their bytes itself
                                        // (keeps_bytes())
  std::span<const double> scales;
  std::span<const double> zeros = {};   // if empty, StoredCodes::zero is used
  std::span<const double> minima = {};  // m in kAny; if empty, 0
};

// Writes codes, scales and zero points or terms of the rows (packed_layout.h). `order` is the
// result of order_by_group(), or empty. Fails with kUnsupported for a scale or term that is too
// large for its type, and with kCorrupt for a zero point that CodeZeros::kIntegers does not allow.
// `first_row` is the index of the first row, for error messages. Requires: kept_form() returned the
// form; the sizes match; each code is below 2^bits.
[[nodiscard]] Status keep_rows(const KeptForm& form, std::span<const std::int32_t> order,
                               std::uint64_t first_row, const StoredRows& rows,
                               const PackedRows& out);

// Returns whether the form stores the bytes of the codes unchanged, provided that the checkpoint
// packs them in rows of ceil(columns * bits / 8) bytes, with the first code in the low bits.
[[nodiscard]] bool keeps_bytes(const KeptForm& form);

}  // namespace onnx_external
