#include "checkpoint/quantized/number_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr int kExponentBias = 127;
constexpr std::size_t kCastAtOnce = 1024;  // elements

template <typename T>
void put_as_doubles(std::span<const std::byte> bytes, double* out) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    *out++ = static_cast<double>(value);
  }
}

void put_floats_as_doubles(DType dtype, std::span<const std::byte> bytes, double* out) {
  std::array<float, kCastAtOnce> floats;
  const std::size_t unit = byte_size(dtype);
  while (!bytes.empty()) {
    const std::size_t count = std::min(kCastAtOnce, bytes.size() / unit);
    cast_elements(dtype, DType::kFloat32, bytes.first(count * unit),
                  std::as_writable_bytes(std::span(floats).first(count)));
    out = std::copy_n(floats.begin(), count, out);
    bytes = bytes.subspan(count * unit);
  }
}

void as_doubles(DType dtype, std::span<const std::byte> bytes, std::vector<double>& out) {
  out.resize(bytes.size() / byte_size(dtype));
  switch (dtype) {
    case DType::kFloat64:
      return put_as_doubles<double>(bytes, out.data());
    case DType::kFloat32:
      return put_as_doubles<float>(bytes, out.data());
    case DType::kUInt8:
      return put_as_doubles<std::uint8_t>(bytes, out.data());
    case DType::kInt8:
      return put_as_doubles<std::int8_t>(bytes, out.data());
    case DType::kInt16:
      return put_as_doubles<std::int16_t>(bytes, out.data());
    case DType::kInt32:
      return put_as_doubles<std::int32_t>(bytes, out.data());
    case DType::kInt64:
      return put_as_doubles<std::int64_t>(bytes, out.data());
    default:
      return put_floats_as_doubles(dtype, bytes, out.data());
  }
}

Result<std::vector<std::byte>> read_elements(const StoredTensor& stored, std::uint64_t first,
                                             std::uint64_t count) {
  const std::uint64_t unit = byte_size(stored.view.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * unit));
  TRY(stored.read(first * unit, bytes));
  return bytes;
}

// The stored numbers [first, first + count) as they count before the second level.
Status read_first_level(const GroupNumbers& numbers, std::uint64_t first, std::uint64_t count,
                        std::vector<double>& values) {
  TRY_ASSIGN(const auto bytes, read_elements(numbers.stored, first, count));
  as_doubles(numbers.stored.view.dtype, bytes, values);
  if (numbers.exponents) {
    for (double& value : values) {
      value = std::ldexp(1.0, static_cast<int>(value) - kExponentBias);
    }
  }
  if (numbers.nested) {
    const NestedNumbers& nested = *numbers.nested;
    const std::uint64_t block = first / nested.block;
    TRY_ASSIGN(const auto absmax,
               read_elements(nested.absmax, block, (first + count - 1) / nested.block - block + 1));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float largest = 0;
      std::memcpy(&largest, absmax.data() + ((first + i) / nested.block - block) * sizeof(float),
                  sizeof(float));
      // Rounded twice, as bitsandbytes does: no processor may fuse the two.
      const double product = double{nested.map[static_cast<std::size_t>(values[i])]} * largest;
      values[i] = static_cast<float>(double{static_cast<float>(product)} + double{nested.offset});
    }
  }
  if (numbers.inverse) {
    for (double& value : values) {
      value = 1 / value;
    }
  }
  if (numbers.divisor != 1) {
    for (double& value : values) {
      value /= numbers.divisor;
    }
  }
  return {};
}

// The place of the number for a group of a row.
class NumberPlaces {
 public:
  NumberPlaces(const GroupNumbers& numbers, const QuantizedMatrix& matrix)
      : numbers_(numbers), matrix_(matrix) {}

  [[nodiscard]] std::uint64_t of(std::uint64_t row, std::uint64_t group) const {
    if (numbers_.place == GroupPlace::kTable) {
      const std::uint64_t table_row =
          row / matrix_.rows * numbers_.rows + row % matrix_.rows / numbers_.row_block;
      return table_row * numbers_.columns + (numbers_.columns == 1 ? 0 : group);
    }
    const std::uint64_t element = row * matrix_.columns + group * matrix_.group;
    return numbers_.place == GroupPlace::kFlat ? element / numbers_.block
                                               : element % numbers_.block;
  }

 private:
  const GroupNumbers& numbers_;
  const QuantizedMatrix& matrix_;
};

}  // namespace

Status read_numbers(const GroupNumbers& numbers, const QuantizedMatrix& matrix,
                    const GroupRange& range, std::span<const double> second,
                    std::vector<double>& out) {
  const NumberPlaces places(numbers, matrix);
  const std::uint64_t last_row = range.row + range.rows - 1;
  std::uint64_t first = places.of(range.row, range.group);
  std::uint64_t last = places.of(last_row, range.group + range.groups - 1);
  const bool is_one_row = range.rows == 1;
  const bool goes_round = first > last || range.groups >= numbers.count;
  if (numbers.place == GroupPlace::kCycle && (!is_one_row || goes_round)) {
    first = 0;
    last = numbers.count - 1;
  }
  const bool is_table = numbers.place == GroupPlace::kTable;
  if (is_table && second.empty() && numbers.row_block == 1 && range.groups == numbers.columns) {
    return read_first_level(numbers, first, last - first + 1, out);  // whole rows of the table
  }
  std::vector<double> values;
  TRY(read_first_level(numbers, first, last - first + 1, values));
  const bool is_one_column = numbers.columns == 1;
  out.clear();
  out.reserve(static_cast<std::size_t>(range.rows * range.groups));
  for (std::uint64_t row = range.row; row <= last_row; ++row) {
    const double factor =
        second.empty()
            ? 1.0
            : second[second.size() == 1 ? 0 : static_cast<std::size_t>(row / matrix.rows)];
    const std::uint64_t start = places.of(row, 0);
    for (std::uint64_t group = range.group; group < range.group + range.groups; ++group) {
      const std::uint64_t place =
          is_table ? start + (is_one_column ? 0 : group) : places.of(row, group);
      const double value = values[static_cast<std::size_t>(place - first)];
      out.push_back(second.empty()           ? value
                    : numbers.second_divides ? value / factor
                                             : value * factor);
    }
  }
  return {};
}

namespace {

// The most numbers of a tensor that are kept in memory, such as one for each column.
constexpr std::uint64_t kMaxKeptNumbers = std::uint64_t{1} << 24;

Result<std::vector<std::byte>> read_few(const StoredTensor& stored, std::uint64_t count) {
  if (count > kMaxKeptNumbers) {
    return unsupported(fmt::format("{}: {} numbers are too many; at most {} can be kept in memory",
                                   quote(stored.view.name), count, kMaxKeptNumbers));
  }
  return read_elements(stored, 0, count);
}

}  // namespace

Result<std::vector<double>> read_first_numbers(const StoredTensor& stored, std::uint64_t count) {
  TRY_ASSIGN(const auto bytes, read_few(stored, count));
  std::vector<double> values;
  as_doubles(stored.view.dtype, bytes, values);
  return values;
}

Result<std::vector<std::int64_t>> read_integers(const StoredTensor& stored, std::uint64_t count) {
  TRY_ASSIGN(const auto bytes, read_few(stored, count));
  std::vector<std::int64_t> values;
  values.reserve(static_cast<std::size_t>(count));
  const std::uint32_t unit = byte_size(stored.view.dtype);
  for (std::size_t at = 0; at < bytes.size(); at += unit) {
    std::int64_t wide = 0;
    std::int32_t narrow = 0;
    std::memcpy(unit == sizeof(wide) ? static_cast<void*>(&wide) : &narrow, bytes.data() + at,
                unit);
    values.push_back(unit == sizeof(wide) ? wide : narrow);
  }
  return values;
}

}  // namespace onnx_external
