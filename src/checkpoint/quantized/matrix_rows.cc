#include "checkpoint/quantized/matrix_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/code_reader.h"
#include "checkpoint/quantized/number_reader.h"

namespace onnx_external {
namespace {

// The number of codes that are unpacked at once; at least one row.
constexpr std::uint64_t kCodesAtOnce = std::uint64_t{1} << 18;

std::vector<std::uint32_t> group_order(std::span<const std::int64_t> index) {
  std::vector<std::uint32_t> order;
  order.reserve(index.size());
  for (const std::int64_t group : index) {
    order.push_back(static_cast<std::uint32_t>(group));
  }
  return order;
}

}  // namespace

Result<MatrixRows> MatrixRows::open(std::shared_ptr<const QuantizedMatrix> matrix) {
  MatrixRows rows(std::move(matrix));
  const QuantizedMatrix& of = *rows.matrix_;
  TRY(rows.read_order());
  if (of.column_factors) {
    TRY_ASSIGN(rows.column_factors_, read_first_numbers(*of.column_factors, of.columns));
  }
  if (of.scales.second) {
    TRY_ASSIGN(rows.second_, read_first_numbers(*of.scales.second, of.scales.second_count));
  }
  return rows;
}

Status MatrixRows::read_order() {
  if (!matrix_->group_index) {
    return {};
  }
  const StoredTensor& stored = *matrix_->group_index;
  TRY_ASSIGN(const auto index, read_integers(stored, matrix_->columns));
  // llm-compressor fills it with -1 where the columns have no order of their own.
  if (std::all_of(index.begin(), index.end(), [](std::int64_t group) { return group == -1; })) {
    return {};
  }
  bool is_plain = true;
  for (std::uint64_t k = 0; k < index.size(); ++k) {
    const std::int64_t group = index[static_cast<std::size_t>(k)];
    if (group < 0 || static_cast<std::uint64_t>(group) >= matrix_->groups) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: column {} is in group {}, but there are {} groups",
                              quote(stored.view.name), k, group, matrix_->groups));
    }
    is_plain = is_plain && static_cast<std::uint64_t>(group) == k / matrix_->group;
  }
  order_ = is_plain ? std::vector<std::uint32_t>() : group_order(index);
  return {};
}

Status MatrixRows::read(const MatrixBlock& block, BlockParts& parts) const {
  const QuantizedMatrix& of = *matrix_;
  assert(block.rows > 0 && block.columns > 0 && block.row + block.rows <= of.all_rows() &&
         block.column + block.columns <= of.columns);
  parts.codes.resize(static_cast<std::size_t>(block.rows * block.columns));
  if (of.blocks) {
    return of.blocks->read(block, parts);
  }
  TRY(read_codes(of.codes, of.columns, block, parts.codes));
  return read_groups(block, parts);
}

Status MatrixRows::read_groups(const MatrixBlock& block, BlockParts& parts, bool with_zeros) const {
  const QuantizedMatrix& of = *matrix_;
  if (of.blocks) {
    return of.blocks->read(block, parts);
  }
  parts.first_group = order_.empty() ? block.column / of.group : 0;
  const std::uint64_t last = (block.column + block.columns - 1) / of.group;
  parts.groups = (order_.empty() ? last + 1 : of.groups) - parts.first_group;
  const GroupRange range{block.row, block.rows, parts.first_group, parts.groups};
  TRY(read_numbers(of.scales, of, range, second_, parts.scales));
  parts.zeros.clear();
  parts.minima.clear();
  if (of.zero_codes && with_zeros) {
    std::vector<std::uint8_t> zeros(static_cast<std::size_t>(block.rows * parts.groups));
    TRY(read_codes(*of.zero_codes, of.groups,
                   {block.row, block.rows, parts.first_group, parts.groups}, zeros));
    const std::uint32_t mask = (std::uint32_t{1} << of.zero_codes->packing.bits) - 1;
    parts.zeros.resize(zeros.size());
    for (std::size_t i = 0; i < zeros.size(); ++i) {
      parts.zeros[i] =
          static_cast<double>(static_cast<std::int32_t>((zeros[i] + of.zero_add) & mask));
    }
  } else if (of.zeros && with_zeros) {
    TRY(read_numbers(*of.zeros, of, range, {}, parts.zeros));
    for (double& zero : parts.zeros) {
      zero += of.zeros_offset;
    }
  }
  if (of.minima) {
    TRY(read_numbers(*of.minima, of, range, {}, parts.minima));
    for (double& minimum : parts.minima) {
      minimum = of.minima_negated ? -minimum : minimum;
    }
  }
  return {};
}

Status MatrixRows::read_floats(const MatrixBlock& block, std::span<float> out) const {
  const QuantizedMatrix& of = *matrix_;
  if (of.blocks) {
    return of.blocks->read_floats(block, out);
  }
  BlockParts parts;
  TRY(read(block, parts));
  std::vector<double> values(std::size_t{1} << of.codes.packing.bits);
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = of.table.empty() ? static_cast<double>(code) : double{of.table[code]};
  }
  for (std::uint64_t row = 0; row < block.rows; ++row) {
    const std::uint8_t* const codes = parts.codes.data() + row * block.columns;
    float* const floats = out.data() + row * block.columns;
    const std::uint64_t first = row * parts.groups;
    const auto put = [&](std::uint64_t begin, std::uint64_t end, std::uint64_t group) {
      const double scale = parts.scales[static_cast<std::size_t>(first + group)];
      const double zero =
          parts.zeros.empty() ? of.zero : parts.zeros[static_cast<std::size_t>(first + group)];
      const double minimum =
          parts.minima.empty() ? 0.0 : parts.minima[static_cast<std::size_t>(first + group)];
      for (std::uint64_t k = begin; k < end; ++k) {
        double value = (values[codes[k]] - zero) * scale;
        value = parts.minima.empty() ? value : value + minimum;
        value = column_factors_.empty()
                    ? value
                    : value * column_factors_[static_cast<std::size_t>(block.column + k)];
        floats[k] = static_cast<float>(value);
      }
    };
    for (std::uint64_t k = 0; k < block.columns;) {
      const std::uint64_t column = block.column + k;
      const std::uint64_t group =
          order_.empty() ? column / of.group : order_[static_cast<std::size_t>(column)];
      const std::uint64_t end =
          order_.empty()
              ? std::min((column / of.group + 1) * of.group - block.column, block.columns)
              : k + 1;
      put(k, end, group - parts.first_group);
      k = end;
    }
  }
  return {};
}

namespace {

// Calls read(block, at) for the blocks that make up the elements [first, first + count).
template <typename Read>
Status in_blocks(std::uint64_t columns, std::uint64_t first, std::uint64_t count,
                 const Read& read) {
  const std::uint64_t end = first + count;
  for (std::uint64_t at = first; at < end;) {
    const std::uint64_t row = at / columns;
    const std::uint64_t column = at % columns;
    MatrixBlock block{row, 1, column, std::min(columns - column, end - at)};
    if (column == 0 && end - at >= columns) {
      block.rows = std::clamp<std::uint64_t>(kCodesAtOnce / columns, 1, (end - at) / columns);
    }
    TRY(read(block, at - first));
    at += block.rows * block.columns;
  }
  return {};
}

}  // namespace

ReadSource matrix_floats(std::shared_ptr<const QuantizedMatrix> matrix) {
  return [matrix = std::move(matrix)](std::uint64_t offset, std::span<std::byte> out) -> Status {
    if (out.empty()) {
      return {};
    }
    TRY_ASSIGN(const auto rows, MatrixRows::open(matrix));
    const std::uint64_t first = offset / sizeof(float);
    const std::uint64_t end = (offset + out.size() + sizeof(float) - 1) / sizeof(float);
    std::vector<float> floats;
    return in_blocks(matrix->columns, first, end - first,
                     [&](const MatrixBlock& block, std::uint64_t at) -> Status {
                       floats.resize(static_cast<std::size_t>(block.rows * block.columns));
                       TRY(rows.read_floats(block, floats));
                       // `out` may begin and end inside elements.
                       const std::uint64_t begin = (first + at) * sizeof(float);
                       const std::uint64_t from = std::max(begin, offset);
                       const std::uint64_t to = std::min<std::uint64_t>(
                           begin + floats.size() * sizeof(float), offset + out.size());
                       std::memcpy(out.data() + (from - offset),
                                   std::as_bytes(std::span(floats)).data() + (from - begin),
                                   static_cast<std::size_t>(to - from));
                       return {};
                     });
  };
}

}  // namespace onnx_external
