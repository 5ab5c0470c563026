#include "checkpoint/quantized/quantized_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kBitsOfByte = 8;
constexpr std::uint32_t kMostCodeBits = 8;

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  return checked_mul(a, b).value_or(std::numeric_limits<std::uint64_t>::max());
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b == 0 ? 0 : 1);
}

Status misfit(const StoredTensor& stored, const std::string& what) {
  return fail(ErrorCode::kCorrupt,
              quote(stored.view.name) + " " + shape_text(stored.view.shape) + ": " + what);
}

Status check_bytes(const StoredTensor& stored, std::uint64_t bytes) {
  TRY_ASSIGN(const auto has, contiguous_nbytes(stored.view.dtype, stored.view.shape));
  return has == bytes
             ? Status()
             : misfit(stored, fmt::format("has {} bytes, but its weight needs {}", has, bytes));
}

Status check_packing(const StoredTensor& stored, const CodePacking& packing) {
  const std::uint32_t bits = packing.bits;
  const std::uint64_t word_bits = packing.word_bytes * kBitsOfByte;
  const bool has_word = packing.word_bytes == 1 || packing.word_bytes == 2 ||
                        packing.word_bytes == 4 || packing.word_bytes == 8;
  if (bits < 1 || bits > kMostCodeBits || !has_word || packing.shifts.empty() ||
      packing.cycle_bits == 0 || (packing.parts > 0) != (packing.part > 0)) {
    return misfit(stored, "its codes are packed in an unknown way");
  }
  const std::uint64_t room = packing.parts > 0 ? word_bits : packing.cycle_bits;
  const bool fits = std::all_of(packing.shifts.begin(), packing.shifts.end(),
                                [&](std::uint32_t shift) { return shift + bits <= room; });
  if (!fits || (packing.parts > 0 &&
                (packing.parts != packing.shifts.size() || packing.cycle_bits != word_bits))) {
    return misfit(stored, "its codes are packed in an unknown way");
  }
  const std::uint64_t in_planes = std::accumulate(packing.planes.begin(), packing.planes.end(), 0U);
  if (!packing.planes.empty() && (in_planes != bits || packing.parts > 0 || packing.flip != 0 ||
                                  packing.cycle_bits != packing.shifts.size() * bits)) {
    return misfit(stored, "its codes are packed in an unknown way");
  }
  return {};
}

// Bytes or words that a line of `count` codes needs.
std::uint64_t words_for(const CodePacking& packing, std::uint64_t count, std::uint64_t word_bits) {
  if (packing.parts > 0) {
    return divide_up(count, packing.parts) == packing.part
               ? packing.part
               : std::numeric_limits<std::uint64_t>::max();
  }
  const std::uint64_t cycles = divide_up(count, packing.shifts.size());
  return divide_up(product(cycles, packing.cycle_bits), word_bits);
}

Status check_codes(const PackedCodes& codes, std::uint64_t rows, std::uint64_t columns) {
  const StoredTensor& stored = codes.stored;
  TRY(check_packing(stored, codes.packing));
  const auto count = checked_mul(codes.rows, codes.columns);
  if (!count || *count != product(rows, columns) || codes.rows == 0 || codes.columns == 0) {
    return misfit(stored, fmt::format("its codes do not form a matrix of {} x {}", rows, columns));
  }
  std::uint64_t lines = codes.rows;
  std::uint64_t least = 0;
  if (codes.packing.axis == CodeAxis::kColumns) {
    least = words_for(codes.packing, codes.columns, kBitsOfByte);
  } else {
    lines = words_for(codes.packing, codes.rows, codes.packing.word_bytes * kBitsOfByte);
    least = product(codes.columns, codes.packing.word_bytes);
    if (least != codes.line_bytes) {
      return misfit(stored, fmt::format("its rows do not have {} words", codes.columns));
    }
  }
  constexpr std::uint64_t kMostPadding = sizeof(std::uint64_t);
  if (codes.line_bytes < least || codes.line_bytes - least >= kMostPadding) {
    return misfit(stored, fmt::format("{} bytes do not form a row of {} codes", codes.line_bytes,
                                      codes.columns));
  }
  return check_bytes(stored, product(lines, codes.line_bytes));
}

Status check_count(const StoredTensor& stored, std::uint64_t count) {
  TRY_ASSIGN(const auto has, element_count(stored.view.shape));
  return has == count ? Status() : misfit(stored, fmt::format("has {} values, not {}", has, count));
}

bool is_number(DType dtype) {
  return can_cast_from(dtype) || dtype == DType::kUInt8 || dtype == DType::kInt8 ||
         dtype == DType::kInt16 || dtype == DType::kInt32 || dtype == DType::kInt64;
}

Status check_nested(const NestedNumbers& nested, const StoredTensor& stored, std::uint64_t count) {
  constexpr std::size_t kMapSize = 256;
  if (nested.map.size() != kMapSize || nested.block == 0 || stored.view.dtype != DType::kUInt8 ||
      nested.absmax.view.dtype != DType::kFloat32) {
    return misfit(stored, "its nested scales are not of a known form");
  }
  TRY(check_count(nested.absmax, nested.count));
  return nested.count == divide_up(count, nested.block)
             ? Status()
             : misfit(nested.absmax, fmt::format("has {} values for {} values in blocks of {}",
                                                 nested.count, count, nested.block));
}

Status check_numbers(const GroupNumbers& numbers, const QuantizedMatrix& matrix) {
  const StoredTensor& stored = numbers.stored;
  if (!is_number(stored.view.dtype) || (numbers.exponents && stored.view.dtype != DType::kUInt8)) {
    return misfit(stored, fmt::format("{} values cannot be scales", torch_name(stored.view.dtype)));
  }
  TRY(check_count(stored, numbers.count));
  const std::uint64_t elements = product(matrix.all_rows(), matrix.columns);
  bool fits = numbers.block > 0 || numbers.place == GroupPlace::kTable;
  if (fits && numbers.place == GroupPlace::kTable) {
    fits = numbers.row_block > 0 && numbers.rows == divide_up(matrix.rows, numbers.row_block) &&
           (numbers.columns == 1 || numbers.columns == matrix.groups) &&
           numbers.count == product(matrix.matrices, product(numbers.rows, numbers.columns));
  } else if (fits && numbers.place == GroupPlace::kFlat) {
    fits = numbers.count == divide_up(elements, numbers.block) &&
           numbers.block % matrix.group == 0 && matrix.columns % matrix.group == 0;
  } else if (fits) {
    fits = numbers.count == numbers.block && matrix.group == 1;
  }
  if (!fits) {
    return misfit(stored, fmt::format("does not fit a weight of {} x {} in groups of {}",
                                      matrix.all_rows(), matrix.columns, matrix.group));
  }
  if (numbers.nested) {
    TRY(check_nested(*numbers.nested, stored, numbers.count));
  }
  if (numbers.second) {
    TRY(check_count(*numbers.second, numbers.second_count));
    if (!can_cast_from(numbers.second->view.dtype) ||
        (numbers.second_count != 1 && numbers.second_count != matrix.matrices)) {
      return misfit(*numbers.second, "does not contain one scale for each matrix");
    }
  }
  return {};
}

Status check_order(const StoredTensor& index, std::uint64_t columns) {
  TRY(check_count(index, columns));
  const DType dtype = index.view.dtype;
  return dtype == DType::kInt32 || dtype == DType::kInt64
             ? Status()
             : misfit(index, fmt::format("{} are not indices of groups", torch_name(dtype)));
}

Status check_kind(const QuantizedMatrix& matrix) {
  const bool needs_table = matrix.kind != CodeKind::kInteger;
  const std::size_t values = std::size_t{1} << matrix.codes.packing.bits;
  return needs_table == !matrix.table.empty() && (!needs_table || matrix.table.size() == values)
             ? Status()
             : misfit(matrix.codes.stored, "its codes have no table of values");
}

}  // namespace

Status check_matrix(const QuantizedMatrix& matrix) {
  const auto rows = checked_mul(matrix.matrices, matrix.rows);
  const auto count = rows ? checked_mul(*rows, matrix.columns) : std::nullopt;
  const auto bytes = count ? checked_mul<std::uint64_t>(*count, sizeof(float)) : std::nullopt;
  if (!bytes || *bytes > std::uint64_t{std::numeric_limits<std::int64_t>::max()} || *count == 0) {
    return misfit(matrix.codes.stored, "its weight is empty or too large");
  }
  if (matrix.group == 0 || matrix.groups != divide_up(matrix.columns, matrix.group)) {
    return misfit(matrix.codes.stored, fmt::format("{} columns are not {} groups of {}",
                                                   matrix.columns, matrix.groups, matrix.group));
  }
  if (matrix.blocks) {
    return {};
  }
  TRY(check_codes(matrix.codes, *rows, matrix.columns));
  TRY(check_kind(matrix));
  TRY(check_numbers(matrix.scales, matrix));
  if (matrix.group_index) {
    TRY(check_order(*matrix.group_index, matrix.columns));
  }
  if (matrix.zero_codes) {
    TRY(check_codes(*matrix.zero_codes, *rows, matrix.groups));
    if (matrix.zero_codes->rows != *rows) {
      return misfit(matrix.zero_codes->stored, "does not contain one zero point for each group");
    }
  }
  if (matrix.zeros) {
    TRY(check_numbers(*matrix.zeros, matrix));
  }
  if (matrix.minima) {
    TRY(check_numbers(*matrix.minima, matrix));
  }
  if (matrix.column_factors) {
    TRY(check_count(*matrix.column_factors, matrix.columns));
    if (!can_cast_from(matrix.column_factors->view.dtype)) {
      return misfit(*matrix.column_factors, "are not floats");
    }
  }
  return {};
}

std::string describe_matrix(const QuantizedMatrix& matrix) {
  if (matrix.blocks) {
    return matrix.method;
  }
  std::string text = fmt::format("{}, {} bits", matrix.method, matrix.codes.packing.bits);
  if (matrix.groups > 1) {
    text += fmt::format(", groups of {}", matrix.group);
  }
  return matrix.group_index ? text + ", with g_idx" : text;
}

std::vector<float> float4_table() {
  constexpr std::array kValues = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  std::vector<float> table(kValues.begin(), kValues.end());
  for (const float value : kValues) {
    table.push_back(-value);
  }
  return table;
}

std::vector<float> float8_table(DType float8) {
  constexpr std::size_t kCodes = 256;
  std::vector<std::byte> codes(kCodes);
  for (std::size_t i = 0; i < kCodes; ++i) {
    codes[i] = static_cast<std::byte>(i);
  }
  std::vector<float> table(kCodes);
  cast_elements(float8, DType::kFloat32, codes, std::as_writable_bytes(std::span(table)));
  return table;
}

}  // namespace onnx_external
