#include "checkpoint/quantized/number_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/try.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

constexpr int kExponentBias = 127;

template <typename T>
void append_as_doubles(std::span<const std::byte> bytes, std::vector<double>& out) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    out.push_back(static_cast<double>(value));
  }
}

std::vector<double> as_doubles(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values;
  values.reserve(bytes.size() / byte_size(dtype));
  switch (dtype) {
    case DType::kFloat64:
      append_as_doubles<double>(bytes, values);
      break;
    case DType::kFloat32:
      append_as_doubles<float>(bytes, values);
      break;
    case DType::kUInt8:
      append_as_doubles<std::uint8_t>(bytes, values);
      break;
    case DType::kInt8:
      append_as_doubles<std::int8_t>(bytes, values);
      break;
    case DType::kInt16:
      append_as_doubles<std::int16_t>(bytes, values);
      break;
    case DType::kInt32:
      append_as_doubles<std::int32_t>(bytes, values);
      break;
    default: {
      std::vector<float> floats(bytes.size() / byte_size(dtype));
      cast_elements(dtype, DType::kFloat32, bytes, std::as_writable_bytes(std::span(floats)));
      values.assign(floats.begin(), floats.end());
    }
  }
  return values;
}

Result<std::vector<std::byte>> read_elements(const StoredTensor& stored, std::uint64_t first,
                                             std::uint64_t count) {
  const std::uint64_t unit = byte_size(stored.view.dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * unit));
  TRY(stored.read(first * unit, bytes));
  return bytes;
}

// The stored numbers [first, first + count) as they count before the second level.
Result<std::vector<double>> read_first_level(const GroupNumbers& numbers, std::uint64_t first,
                                             std::uint64_t count) {
  TRY_ASSIGN(const auto bytes, read_elements(numbers.stored, first, count));
  std::vector<double> values = as_doubles(numbers.stored.view.dtype, bytes);
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
  return values;
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
  TRY_ASSIGN(auto values, read_first_level(numbers, first, last - first + 1));
  const bool is_table = numbers.place == GroupPlace::kTable;
  if (is_table && second.empty() && numbers.row_block == 1 && range.groups == numbers.columns) {
    out = std::move(values);  // whole rows of the table
    return {};
  }
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

Result<std::vector<double>> read_first_numbers(const StoredTensor& stored, std::uint64_t count) {
  TRY_ASSIGN(const auto bytes, read_elements(stored, 0, count));
  return as_doubles(stored.view.dtype, bytes);
}

Result<std::vector<std::int64_t>> read_integers(const StoredTensor& stored, std::uint64_t count) {
  TRY_ASSIGN(const auto bytes, read_elements(stored, 0, count));
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
