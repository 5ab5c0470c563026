#include "checkpoint/quantized/scale_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// [rows, columns] of the scales of one matrix; ones for dimensions that are not there.
struct TableShape {
  std::uint64_t rows = 1;
  std::uint64_t columns = 1;
};

Result<TableShape> table_shape(const QuantizedMatrix& matrix, const TensorView& scales) {
  Shape shape = scales.shape;
  if (matrix.matrices > 1 || (matrix.codes.stored.view.shape.size() == 3 && shape.size() == 3)) {
    if (shape.empty() || std::cmp_not_equal(shape.front(), matrix.matrices)) {
      return corrupt(fmt::format("{} {} has no scales for {} matrices", quote(scales.name),
                                 shape_text(scales.shape), matrix.matrices));
    }
    shape.erase(shape.begin());
  }
  while (shape.size() > 2 && shape.back() == 1) {
    shape.pop_back();
  }
  if (shape.size() > 2) {
    return corrupt(quote(scales.name) + " " + shape_text(scales.shape) +
                   " has too many dimensions for scales");
  }
  TableShape table;
  table.rows = shape.empty() ? 1 : static_cast<std::uint64_t>(shape[0]);
  table.columns = shape.size() < 2 ? 1 : static_cast<std::uint64_t>(shape[1]);
  return table;
}

// Returns the number of rows that share a scale if there are scales for `count` blocks of rows.
Result<std::uint64_t> rows_of_block(std::uint64_t rows, std::uint64_t count,
                                    std::optional<std::int64_t> said, const TensorView& scales) {
  if (said && *said > 0) {
    const auto block = static_cast<std::uint64_t>(*said);
    if (rows / block + (rows % block == 0 ? 0 : 1) == count) {
      return block;
    }
  }
  if (count == 0 || rows % count != 0) {
    return corrupt(fmt::format("{} {} does not have one scale for each block of {} rows",
                               quote(scales.name), shape_text(scales.shape), rows));
  }
  return rows / count;
}

}  // namespace

Status set_scale_table(const MatrixFinder& finder, QuantizedMatrix& matrix,
                       const TensorView& scales, const SaidBlock& said) {
  GroupNumbers& numbers = matrix.scales;
  numbers.stored = finder.stored(scales);
  numbers.exponents = scales.dtype == DType::kUInt8;
  TRY_ASSIGN(numbers.count, element_count(scales.shape));
  if (numbers.count == 1 && matrix.matrices == 1) {
    numbers.row_block = matrix.rows;
    matrix.group = matrix.columns;
    matrix.groups = 1;
    return {};
  }
  TRY_ASSIGN(const auto table, table_shape(matrix, scales));
  TRY(set_groups(matrix, table.columns, said.columns, scales));
  numbers.rows = table.rows;
  numbers.columns = table.columns;
  TRY_ASSIGN(numbers.row_block, rows_of_block(matrix.rows, table.rows, said.rows, scales));
  return {};
}

GroupNumbers numbers_like_scales(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                                 const TensorView& numbers) {
  GroupNumbers like = matrix.scales;
  like.stored = finder.stored(numbers);
  like.exponents = false;
  like.divisor = 1;
  like.second.reset();
  like.nested.reset();
  return like;
}

PackedCodes codes_in_rows(const MatrixFinder& finder, const QuantizedMatrix& matrix,
                          const TensorView& view, std::uint32_t bits) {
  PackedCodes codes;
  codes.stored = finder.stored(view);
  codes.packing.bits = bits;
  codes.packing.cycle_bits = bits;
  codes.rows = matrix.all_rows();
  codes.columns = matrix.columns;
  const auto bytes = contiguous_nbytes(view.dtype, view.shape);
  codes.line_bytes = bytes && codes.rows > 0 ? *bytes / codes.rows : 0;
  return codes;
}

std::optional<QuantizedMatrix> matrix_of(const TensorView& view, std::uint64_t per_byte) {
  const std::size_t rank = view.shape.size();
  if ((rank != 2 && rank != 3) || !has_rank(&view, rank)) {
    return std::nullopt;
  }
  QuantizedMatrix matrix;
  matrix.matrices = rank == 3 ? dim(view, 0) : 1;
  matrix.rows = dim(view, rank - 2);
  const auto columns = checked_mul(dim(view, rank - 1), per_byte);
  const auto rows = checked_mul(matrix.matrices, matrix.rows);
  if (!columns || !rows) {
    return std::nullopt;
  }
  matrix.columns = *columns;
  return matrix;
}

std::string weight_name(const std::string& module) {
  return module.empty() ? "weight" : module + ".weight";
}

std::string weight_name(const std::string& module, const TensorView& codes) {
  const std::string_view parent =
      std::string_view(module).substr(0, std::min(module.size(), module.rfind('.')));
  const bool is_parameter =
      codes.shape.size() == 3 && (parent == "experts" || parent.ends_with(".experts"));
  return is_parameter ? module : weight_name(module);
}

}  // namespace onnx_external
