#include "checkpoint/lora_product.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "tensor/cast.h"

namespace onnx_external {
namespace {

// So many sums are kept in a core's first cache while the terms are added.
constexpr std::uint64_t kColumnsAtOnce = 1024;

std::uint64_t bytes_of(DType type) {
  return bit_size(type) / 8;
}

// The elements [first, first + count) of a source, as float32.
Result<std::vector<float>> read_floats(const ReadSource& source, DType type, std::uint64_t first,
                                       std::uint64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const std::span<std::byte> out = std::as_writable_bytes(std::span(values));
  if (type == DType::kFloat32) {
    TRY(source(first * bytes_of(type), out));
    return values;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * bytes_of(type)));
  TRY(source(first * bytes_of(type), bytes));
  cast_elements(type, DType::kFloat32, bytes, out);
  return values;
}

// Reads bytes of elements, where `read` only returns whole elements as floats.
template <typename Read>
Status read_as(DType type, std::uint64_t first, std::span<std::byte> out, const Read& read) {
  const std::uint64_t size = bytes_of(type);
  const std::uint64_t begin = first / size;
  const std::uint64_t end = (first + out.size() + size - 1) / size;
  TRY_ASSIGN(const std::vector<float> values, read(begin, end - begin));
  std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * size));
  if (type == DType::kFloat32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    cast_elements(DType::kFloat32, type, std::as_bytes(std::span(values)), bytes);
  }
  std::memcpy(out.data(), bytes.data() + (first - begin * size), out.size());
  return {};
}

// Adds the product to a part of a row: `sums` has its elements from `column` on. Products of two
// floats are exact in double precision, so a processor may fuse them with the addition.
void add_row(const LoraProduct& product, std::span<const float> left, std::span<const float> right,
             std::uint64_t column, std::span<float> sums) {
  std::vector<double> terms(static_cast<std::size_t>(kColumnsAtOnce));
  for (std::size_t at = 0; at < sums.size(); at += kColumnsAtOnce) {
    const std::size_t count = std::min<std::size_t>(kColumnsAtOnce, sums.size() - at);
    std::fill_n(terms.begin(), count, 0.0);
    for (std::size_t k = 0; k < left.size(); ++k) {
      const double factor = left[k];
      const float* const row = right.data() + k * product.columns + column + at;
      for (std::size_t i = 0; i < count; ++i) {
        terms[i] += factor * row[i];
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto term = static_cast<float>(terms[i]);
      const auto scaled = static_cast<float>(double{term} * double{product.scale});
      sums[at + i] += scaled;
    }
  }
}

Result<std::vector<float>> read_sums(const LoraProduct& product, std::uint64_t first,
                                     std::uint64_t count) {
  TRY_ASSIGN(auto sums, read_floats(product.weight, product.weight_type, first, count));
  TRY_ASSIGN(const auto right,
             read_floats(product.right, product.right_type, 0, product.rank * product.columns));
  const std::uint64_t begin = first / product.columns;
  const std::uint64_t end = (first + count + product.columns - 1) / product.columns;
  TRY_ASSIGN(const auto left, read_floats(product.left, product.left_type, begin * product.rank,
                                          (end - begin) * product.rank));
  for (std::uint64_t row = begin; row < end; ++row) {
    const std::uint64_t from = std::max(first, row * product.columns);
    const std::uint64_t to = std::min(first + count, (row + 1) * product.columns);
    add_row(product,
            std::span(left).subspan(static_cast<std::size_t>((row - begin) * product.rank),
                                    static_cast<std::size_t>(product.rank)),
            right, from - row * product.columns,
            std::span(sums).subspan(static_cast<std::size_t>(from - first),
                                    static_cast<std::size_t>(to - from)));
  }
  return sums;
}

}  // namespace

ReadSource lora_sum(LoraProduct product) {
  return [product = std::move(product)](std::uint64_t first, std::span<std::byte> out) {
    return read_as(product.weight_type, first, out, [&](std::uint64_t begin, std::uint64_t count) {
      return read_sums(product, begin, count);
    });
  };
}

ReadSource converted(ReadSource from, DType type, DType to) {
  return [from = std::move(from), type, to](std::uint64_t first, std::span<std::byte> out) {
    return read_as(to, first, out, [&](std::uint64_t begin, std::uint64_t count) {
      return read_floats(from, type, begin, count);
    });
  };
}

}  // namespace onnx_external
