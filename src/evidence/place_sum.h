// A sum over the elements of a matrix that a matrix and the transpose of its transpose share, so
// that a transposed copy is recognised in one pass over each, in the order of the file.
#pragma once

#include <cstdint>

#include "evidence/byte_stream.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Each element is mixed with its place in the row-major matrix by factors that this process drew;
// the results are added up. Two matrices with another element at some place have the same sum with
// a chance of 2^-64, whatever the files hold, since nobody knows the factors beforehand.
class PlaceSum {
 public:
  enum class Places : std::uint8_t {
    kOwn,         // of the matrix as it is read
    kTransposed,  // of its transpose
  };
  // Elements of 1, 2, 4, 8 or 16 bytes, rows of `columns`.
  // Requires: rows * columns elements are to come; neither is 0.
  PlaceSum(std::uint32_t element_bytes, std::uint64_t rows, std::uint64_t columns, Places places);

  // The next elements, whole ones.
  void add(std::span<const std::byte> elements);
  [[nodiscard]] std::uint64_t value() const { return sum_; }

 private:
  template <typename Element>
  void add_all(std::span<const std::byte> elements);

  std::uint32_t element_bytes_;
  std::uint64_t columns_;
  std::uint64_t step_;  // from an element to the next one of its row
  std::uint64_t row_ = 0;
  std::uint64_t column_ = 0;
  std::uint64_t row_step_;
  std::uint64_t element_factor_;
  std::uint64_t place_factor_;
  std::uint64_t sum_ = 0;
};

// Of all that the stream gives.
[[nodiscard]] Result<std::uint64_t> place_sum(const ByteStream& stream, PlaceSum sum);

}  // namespace onnx_external
