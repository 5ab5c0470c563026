#include <algorithm>
#include <cmath>
#include <vector>

#include "base/try.h"
#include "save/kept_rows.h"

namespace onnx_external {
namespace {

// Returns whether all zero points are the middle of the codes, as far as this follows from their
// bytes without unpacking them.
Result<bool> are_middle_bytes(const PackedCodes& zeros, std::uint32_t added, unsigned middle) {
  constexpr std::uint64_t kBytesAtOnce = std::uint64_t{256} << 10;
  const std::uint32_t bits = zeros.packing.bits;
  const unsigned mask = (1U << bits) - 1;
  if (8 % bits != 0 || middle > mask) {
    return false;
  }
  const unsigned code = ((middle - added) & mask) ^ zeros.packing.flip;
  unsigned pattern = 0;
  for (std::uint32_t shift = 0; shift < 8; shift += bits) {
    pattern |= code << shift;
  }
  const TensorView& view = zeros.stored.view;
  const std::uint64_t all = contiguous_nbytes(view.dtype, view.shape).value_or(0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(kBytesAtOnce, all)));
  for (std::uint64_t first = 0; first < all; first += bytes.size()) {
    bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), all - first)));
    TRY(zeros.stored.read(first, bytes));
    if (std::any_of(bytes.begin(), bytes.end(),
                    [&](std::byte byte) { return std::to_integer<unsigned>(byte) != pattern; })) {
      return false;
    }
  }
  return all > 0;
}

}  // namespace

Status judge_zeros(const MatrixRows& rows, StoredCodes& stored) {
  constexpr std::uint64_t kMostZerosRead = std::uint64_t{1} << 20;
  constexpr std::uint64_t kRowsAtOnce = 64;
  const QuantizedMatrix& matrix = rows.matrix();
  if ((!matrix.zero_codes && !matrix.zeros) || matrix.minima ||
      matrix.all_rows() * matrix.groups > kMostZerosRead) {
    return {};
  }
  const double middle = 1U << (stored.bits - 1);
  const double most = (1U << stored.bits) - 1;
  if (matrix.zero_codes) {
    TRY_ASSIGN(const bool is_middle, are_middle_bytes(*matrix.zero_codes, matrix.zero_add,
                                                      static_cast<unsigned>(middle)));
    if (is_middle) {
      stored.zeros = CodeZeros::kMiddle;
      return {};
    }
  }
  bool is_middle = true;
  bool are_codes = true;
  BlockParts parts;
  for (std::uint64_t row = 0; row < matrix.all_rows(); row += kRowsAtOnce) {
    const std::uint64_t count = std::min(kRowsAtOnce, matrix.all_rows() - row);
    TRY(rows.read_groups({row, count, 0, matrix.columns}, parts));
    for (const double zero : parts.zeros) {
      is_middle = is_middle && zero == middle;
      are_codes = are_codes && zero >= 0 && zero <= most && zero == std::trunc(zero);
    }
    if (!is_middle && (!are_codes || matrix.zero_codes)) {
      break;  // nothing that follows changes the answer
    }
  }
  if (is_middle) {
    stored.zeros = CodeZeros::kMiddle;
  } else if (matrix.zeros && are_codes) {
    stored.zeros = CodeZeros::kIntegers;
  }
  return {};
}

}  // namespace onnx_external
