#include "checkpoint/quantized/scale_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/module_settings.h"

namespace onnx_external {
namespace {

std::optional<std::int64_t> item_of(const Json* list, std::size_t at) {
  const JsonArray* const items = list == nullptr ? nullptr : list->array();
  return items != nullptr && at < items->size() ? json_integer(&(*items)[at]) : std::nullopt;
}

// [rows, columns] of the scales of one matrix; ones for dimensions that are not there.
struct TableShape {
  std::uint64_t rows = 1;
  std::uint64_t columns = 1;
  bool is_list = false;  // one dimension
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
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) {  // ModelOpt's blocks
    shape = {shape[0], shape[2]};
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
  table.is_list = shape.size() == 1;
  return table;
}

// Returns the number of rows that share a scale if there are scales for `table.rows` blocks of
// rows. A list has a scale for each row: no library stores blocks in a list, and parts of a joined
// weight may have any number of rows.
Result<std::uint64_t> rows_of_block(std::uint64_t rows, const TableShape& table,
                                    std::optional<std::int64_t> said, const TensorView& scales) {
  const std::uint64_t count = table.rows;
  if (table.is_list && count != 1 && count != rows) {
    return corrupt(fmt::format("{} {} does not have one scale for each of {} rows",
                               quote(scales.name), shape_text(scales.shape), rows));
  }
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

// Tiles of scales: element (r, g) of a tile is in line r % 32, at place r / 32 * 4 + g.
constexpr std::uint64_t kTileRows = 128;
constexpr std::uint64_t kTileLines = 32;
constexpr std::uint64_t kTileGroups = 4;
constexpr std::uint64_t kTileLineBytes = 16;

// `count` as [tiles, parts of a tile, ...], outermost first; nothing if the last tile is cut and
// the cut cannot be written in this way.
std::optional<Shape> tile_axis(std::uint64_t count, std::uint64_t tile, std::uint64_t inner) {
  const auto shape = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    return Shape{static_cast<std::int64_t>(a), static_cast<std::int64_t>(b),
                 static_cast<std::int64_t>(c)};
  };
  if (count % tile == 0) {
    return shape(count / tile, tile / inner, inner);
  }
  if (count < tile && count % inner == 0) {
    return shape(1, count / inner, inner);
  }
  return count < inner ? std::optional(shape(1, 1, count)) : std::nullopt;
}

// The view whose row-major order is that of the table of scales.
std::optional<TensorView> tile_view(const TensorView& scales, std::uint64_t rows,
                                    std::uint64_t groups) {
  constexpr std::int64_t kTileSize = kTileLines * kTileLineBytes;
  const auto down = tile_axis(rows, kTileRows, kTileLines);
  const auto across = tile_axis(groups, kTileGroups, kTileGroups);
  if (!down || !across) {
    return std::nullopt;
  }
  const auto in_row = static_cast<std::int64_t>((groups + kTileGroups - 1) / kTileGroups);
  TensorView view = scales;
  view.shape = {(*down)[0], (*down)[1], (*down)[2], (*across)[0], (*across)[2]};
  view.strides = {in_row * kTileSize, kTileGroups, kTileLineBytes, kTileSize, 1};
  return view;
}

}  // namespace

SaidBlock said_block(const QuantSettings& settings, const std::string& module, SaidBlock usual) {
  const Json* block = settings.config.find("weight_block_size");
  std::optional<std::int64_t> group;
  bool agree = true;
  for (const Json* const args : weight_args(settings, module)) {
    const Json* const own = args->find("block_structure");
    block = own == nullptr ? block : own;
    const auto other = json_integer(args->find("group_size"));
    agree = agree && (!group || !other || *group == *other);
    group = other ? other : group;
  }
  if (const auto rows = item_of(block, 0), columns = item_of(block, 1); rows && columns) {
    return {rows, columns};
  }
  return {usual.rows, group && agree ? group : usual.columns};
}

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
  TRY_ASSIGN(numbers.row_block, rows_of_block(matrix.rows, table, said.rows, scales));
  return {};
}

bool is_exponent(DType dtype) {
  return dtype == DType::kUInt8 || dtype == DType::kFloat8E8M0FnU;
}

bool is_tiled(const TensorView& scales, std::uint64_t rows, std::uint64_t groups) {
  return has_rank(&scales, 2) && is_contiguous(scales.shape, scales.strides) &&
         dim(scales, 0) == (rows + kTileRows - 1) / kTileRows * kTileLines &&
         dim(scales, 1) == (groups + kTileGroups - 1) / kTileGroups * kTileLineBytes;
}

Status set_tiled_scales(const MatrixFinder& finder, QuantizedMatrix& matrix,
                        const TensorView& scales, std::int64_t group) {
  const auto size = static_cast<std::uint64_t>(group);
  const std::uint64_t groups = (matrix.columns + size - 1) / size;
  if (!is_tiled(scales, matrix.rows, groups)) {
    return set_scale_table(finder, matrix, scales, {1, group});
  }
  const auto tiles = tile_view(scales, matrix.rows, groups);
  if (!tiles) {
    return unsupported(
        fmt::format("{} {}: is padded to tiles of a GPU kernel, which is not supported for {} rows "
                    "of {} groups",
                    quote(scales.name), shape_text(scales.shape), matrix.rows, groups));
  }
  TensorView table = scales;  // only its shape is looked at
  table.shape = {static_cast<std::int64_t>(matrix.rows), static_cast<std::int64_t>(groups)};
  table.strides = contiguous_strides(table.shape);
  TRY(set_scale_table(finder, matrix, table, {1, group}));
  matrix.scales.stored = finder.stored(*tiles);
  return {};
}

Status check_no_zeros(const MatrixFinder& finder, const std::string& module) {
  const TensorView* const zeros = finder.find(module, "weight_zero_point");
  if (zeros == nullptr) {
    return {};
  }
  TRY_ASSIGN(const auto size, contiguous_nbytes(zeros->dtype, zeros->shape));
  const StoredTensor stored = finder.stored(*zeros);
  std::array<std::byte, 4096> buffer{};
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    const auto some = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at)));
    TRY(stored.read(at, some));
    if (std::any_of(some.begin(), some.end(), [](std::byte b) { return b != std::byte{0}; })) {
      return corrupt(quote(zeros->name) +
                     ": is not zero, but codes that are floats have no zero points");
    }
  }
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
