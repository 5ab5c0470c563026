#include "checkpoint/gguf/block_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/pack_blocks.h"
#include "checkpoint/quantized/matrix_rows.h"
#include "checkpoint/quantized/number_reader.h"

namespace onnx_external {
namespace {

// The bytes read at once, at least one row, are few enough to stay in the processor's cache until
// they are used.
constexpr std::uint64_t kBytesAtOnce = std::uint64_t{1} << 16;

// Rows of a weight that are evenly spaced in a tensor.
struct RowRun {
  const BlockTensor* tensor = nullptr;
  std::uint64_t stored = 0;       // the first row there
  std::uint64_t stored_step = 1;  // to the next
  std::uint64_t row = 0;          // the first row of the weight, counted from those asked for
  std::uint64_t row_step = 1;
  std::uint64_t rows = 0;
};

// Consecutive blocks of a row.
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

class BlockRowReader final : public BlockReader {
 public:
  BlockRowReader(BlockRows source, std::uint64_t matrix_rows, std::vector<float> factors)
      : source_(std::move(source)),
        matrix_rows_(matrix_rows),
        factors_(std::move(factors)),
        type_(*source_.tensors.front().type),
        all_{0, source_.tensors.front().columns / type_.values} {}

  [[nodiscard]] bool has_minima() const override { return type_.has_minima; }

  [[nodiscard]] Status read(const MatrixBlock& block, BlockParts& parts) const override {
    const BlockRange range = range_of(block);
    parts.first_group = block.column / type_.group;
    parts.groups = (block.column + block.columns - 1) / type_.group + 1 - parts.first_group;
    const auto numbers = static_cast<std::size_t>(block.rows * parts.groups);
    parts.codes.resize(static_cast<std::size_t>(block.rows * block.columns));
    parts.scales.resize(numbers);
    parts.zeros.clear();
    parts.minima.resize(type_.has_minima ? numbers : 0);
    return each_row(block.row, block.rows, range,
                    [&](std::uint64_t row, const std::uint8_t* bytes) {
                      unpack_row(bytes, range, block, row, parts);
                    });
  }

  [[nodiscard]] Status read_floats(const MatrixBlock& block, std::span<float> out) const override {
    const BlockRange range = range_of(block);
    const auto values = static_cast<std::size_t>(range.count * type_.values);
    const auto skipped = static_cast<std::size_t>(block.column - range.first * type_.values);
    std::vector<float> whole(values == block.columns ? 0 : values);
    return each_row(
        block.row, block.rows, range, [&](std::uint64_t row, const std::uint8_t* bytes) {
          const auto to = out.subspan(static_cast<std::size_t>(row * block.columns),
                                      static_cast<std::size_t>(block.columns));
          const auto made = whole.empty() ? to : std::span(whole);
          const auto* const in = reinterpret_cast<const std::byte*>(bytes);
          decode_row(type_, {in, bytes_of(range.count)}, made);
          if (!whole.empty()) {
            std::copy_n(made.begin() + static_cast<std::ptrdiff_t>(skipped), to.size(), to.begin());
          }
          multiply(to, factor_of(block.row + row));
        });
  }

  [[nodiscard]] Status read_kept(std::uint64_t row, std::uint64_t rows,
                                 const KeptParts& out) const override {
    const auto part = [&](std::span<std::byte> bytes, std::uint64_t i) {
      return bytes.data() + bytes.size() / rows * i;
    };
    const auto groups = static_cast<std::size_t>(all_.count * type_.groups());
    std::vector<float> scales(groups);
    std::vector<float> terms(type_.has_minima ? groups : 0);
    return each_row(row, rows, all_, [&](std::uint64_t i, const std::uint8_t* bytes) {
      pack_row(type_, bytes, static_cast<std::size_t>(all_.count),
               {reinterpret_cast<std::uint8_t*>(part(out.codes, i)), scales.data(), terms.data()});
      multiply(scales, factor_of(row + i));
      std::memcpy(part(out.scales, i), scales.data(), groups * sizeof(float));
      if (!terms.empty()) {
        std::memcpy(part(out.terms, i), terms.data(), groups * sizeof(float));
      }
    });
  }

 private:
  [[nodiscard]] std::size_t bytes_of(std::uint64_t blocks) const {
    return static_cast<std::size_t>(blocks * type_.bytes);
  }

  // Returns the range of the blocks that contain the columns.
  [[nodiscard]] BlockRange range_of(const MatrixBlock& block) const {
    const std::uint64_t first = block.column / type_.values;
    return {first, (block.column + block.columns - 1) / type_.values + 1 - first};
  }

  [[nodiscard]] float factor_of(std::uint64_t row) const {
    return factors_.empty()       ? 1.0F
           : factors_.size() == 1 ? factors_.front()
                                  : factors_[static_cast<std::size_t>(row / matrix_rows_)];
  }

  void multiply(std::span<float> values, float factor) const {
    for (std::size_t i = 0; !factors_.empty() && i < values.size(); ++i) {
      values[i] *= factor;
    }
  }

  // Returns the first of these rows and those after it that are evenly spaced.
  [[nodiscard]] RowRun run_at(std::uint64_t row, std::uint64_t most) const {
    const std::uint64_t at = source_.first_row + row;
    const std::uint64_t head = source_.head_rows;
    if (head == 0) {
      return {&source_.tensors.front(), at, 1, 0, 1, most};
    }
    const std::uint64_t half = head / 2;
    const std::uint64_t in_half = at % half;
    return {
        &source_.tensors.front(),      at / head * head + 2 * in_half + at % head / half, 2, 0, 1,
        std::min(most, half - in_half)};
  }

  // Calls use(row, bytes) with the blocks of each row, counted from the first one.
  template <typename Use>
  [[nodiscard]] Status each_row(std::uint64_t row, std::uint64_t rows, BlockRange range,
                                const Use& use) const {
    std::vector<std::byte> buffer;
    const std::uint64_t count = source_.tensors.size();
    if (count > 1) {  // rows in turn
      for (std::uint64_t i = 0; i < std::min(count, rows); ++i) {
        const std::uint64_t place = row + i;
        const RowRun run{&source_.tensors[static_cast<std::size_t>(place % count)],
                         source_.first_row + place / count,
                         1,
                         i,
                         count,
                         (rows - i + count - 1) / count};
        TRY(each_of_run(run, range, buffer, use));
      }
      return {};
    }
    for (std::uint64_t done = 0; done < rows;) {
      RowRun run = run_at(row + done, rows - done);
      run.row = done;
      TRY(each_of_run(run, range, buffer, use));
      done += run.rows;
    }
    return {};
  }

  template <typename Use>
  [[nodiscard]] Status each_of_run(const RowRun& run, BlockRange range,
                                   std::vector<std::byte>& buffer, const Use& use) const {
    const std::uint64_t row_bytes = bytes_of(all_.count);
    const bool is_whole = range.count == all_.count;
    const std::uint64_t step_bytes = row_bytes * run.stored_step;
    const std::uint64_t most = is_whole ? std::max<std::uint64_t>(1, kBytesAtOnce / step_bytes) : 1;
    for (std::uint64_t done = 0; done < run.rows;) {
      const std::uint64_t rows = std::min(most, run.rows - done);
      buffer.resize(static_cast<std::size_t>((rows - 1) * step_bytes) + bytes_of(range.count));
      const std::uint64_t first = run.stored + done * run.stored_step;
      TRY(run.tensor->stored.read(first * row_bytes + bytes_of(range.first), buffer));
      for (std::uint64_t i = 0; i < rows; ++i) {
        use(run.row + (done + i) * run.row_step,
            reinterpret_cast<const std::uint8_t*>(buffer.data()) + i * step_bytes);
      }
      done += rows;
    }
    return {};
  }

  // Unpacks a row into the parts of a matrix block.
  void unpack_row(const std::uint8_t* bytes, BlockRange range, const MatrixBlock& block,
                  std::uint64_t row, BlockParts& parts) const {
    std::array<std::int8_t, kMostBlockValues> codes{};
    std::array<float, kMostBlockGroups> scales{};
    std::array<float, kMostBlockGroups> minima{};
    const BlockCodes unpacked{std::span(codes).first(type_.values),
                              std::span(scales).first(type_.groups()),
                              std::span(minima).first(type_.groups())};
    const int add = (1 << (type_.bits - 1)) - type_.middle;
    const float factor = factor_of(block.row + row);
    for (std::uint64_t b = 0; b < range.count; ++b) {
      type_.unpack(bytes + bytes_of(b), unpacked);
      const std::uint64_t column = (range.first + b) * type_.values;
      const std::uint64_t from = std::max(column, block.column);
      const std::uint64_t to = std::min(column + type_.values, block.column + block.columns);
      for (std::uint64_t k = from; k < to; ++k) {
        parts.codes[static_cast<std::size_t>(row * block.columns + k - block.column)] =
            static_cast<std::uint8_t>(codes[static_cast<std::size_t>(k - column)] + add);
      }
      for (std::uint64_t k = from; k < to; k = (k / type_.group + 1) * type_.group) {
        const auto in_block = static_cast<std::size_t>((k - column) / type_.group);
        const auto place =
            static_cast<std::size_t>(row * parts.groups + k / type_.group - parts.first_group);
        parts.scales[place] = double{scales[in_block] * factor};
        if (type_.has_minima) {
          parts.minima[place] = double{minima[in_block]};
        }
      }
    }
  }

  BlockRows source_;
  std::uint64_t matrix_rows_;
  std::vector<float> factors_;
  const BlockType& type_;
  BlockRange all_;  // of a row
};

tl::unexpected<Error> does_not_fit(const BlockTensor& tensor, const std::string& what) {
  return corrupt(quote(tensor.stored.view.name) + ": " + what);
}

Status check_tensor(const BlockTensor& tensor, const BlockTensor& first) {
  const BlockType& type = *tensor.type;
  if (tensor.rows == 0 || tensor.columns == 0 || tensor.columns % type.values != 0) {
    return does_not_fit(
        tensor,
        fmt::format("rows of {} values cannot be divided into blocks of {}, which have {} values",
                    tensor.columns, type.name, type.values));
  }
  if (tensor.type != first.type || tensor.rows != first.rows || tensor.columns != first.columns) {
    return does_not_fit(tensor, "differs in type or shape from " + quote(first.stored.view.name) +
                                    ", although the rows of both alternate");
  }
  const auto row_bytes = checked_mul<std::uint64_t>(tensor.columns / type.values, type.bytes);
  const auto bytes = row_bytes ? checked_mul(*row_bytes, tensor.rows) : std::nullopt;
  TRY_ASSIGN(const auto stored,
             contiguous_nbytes(tensor.stored.view.dtype, tensor.stored.view.shape));
  return bytes == stored
             ? Status()
             : does_not_fit(tensor, fmt::format("{} rows of {} {} values are not {} bytes",
                                                tensor.rows, tensor.columns, type.name, stored));
}

Status check_source(const BlockRows& source, std::uint64_t rows) {
  const BlockTensor& first = source.tensors.front();
  for (const BlockTensor& tensor : source.tensors) {
    TRY(check_tensor(tensor, first));
  }
  const std::uint64_t count = source.tensors.size();
  const std::uint64_t head = source.head_rows;
  if (rows == 0 || rows % count != 0 || source.first_row > first.rows ||
      rows / count > first.rows - source.first_row) {
    return does_not_fit(first, fmt::format("its {} rows from {} on do not yield {} rows",
                                           first.rows, source.first_row, rows));
  }
  if (head != 0 &&
      (count > 1 || head % 2 != 0 || rows % head != 0 || source.first_row % head != 0)) {
    return does_not_fit(first,
                        fmt::format("{} rows cannot be divided into heads of {} rows", rows, head));
  }
  return {};
}

Result<std::vector<float>> read_factors(const StoredTensor& stored, std::uint64_t matrices) {
  TRY_ASSIGN(const auto count, element_count(stored.view.shape));
  if (stored.view.dtype != DType::kFloat32 || (count != 1 && std::cmp_not_equal(count, matrices))) {
    return corrupt(quote(stored.view.name) + ": does not contain one float32 for each matrix");
  }
  std::vector<float> factors(static_cast<std::size_t>(count));
  TRY(stored.read(0, std::as_writable_bytes(std::span(factors))));
  return factors;
}

}  // namespace

Result<QuantizedMatrix> block_matrix(std::string name, std::uint64_t matrices, std::uint64_t rows,
                                     BlockRows source) {
  const BlockTensor first = source.tensors.front();
  const BlockType& type = *first.type;
  const auto all_rows = checked_mul(matrices, rows);
  TRY(check_source(source, all_rows.value_or(0)));
  QuantizedMatrix matrix;
  matrix.method = "GGUF " + std::string(type.name);
  matrix.name = std::move(name);
  matrix.matrices = matrices;
  matrix.rows = rows;
  matrix.columns = first.columns;
  matrix.codes.packing.bits = type.bits;
  matrix.group = type.group;
  matrix.groups = first.columns / type.group;
  matrix.zero = static_cast<double>((1 << (type.bits - 1)) - type.middle);
  for (const BlockTensor& tensor : source.tensors) {
    matrix.parts.push_back(tensor.stored.view);
  }
  std::vector<float> factors;
  if (source.factors) {
    matrix.parts.push_back(source.factors->view);
    TRY_ASSIGN(factors, read_factors(*source.factors, matrices));
  }
  matrix.blocks =
      std::make_shared<const BlockRowReader>(std::move(source), rows, std::move(factors));
  TRY(check_matrix(matrix));
  return matrix;
}

}  // namespace onnx_external
