// Computes a checksum of a matrix that can also be computed from the transposed matrix. A
// transposed copy can therefore be recognized by reading the matrix and the copy once each, in file
// order.
#pragma once

#include <cstdint>

#include "evidence/byte_stream.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Each element is combined with its index in the row-major matrix, using random factors that this
// process chooses, and the results are added. Two different matrices have the same sum with
// probability 2^-64. A file cannot be made to increase this probability, because the factors are
// not known in advance.
class PlaceSum {
 public:
  enum class Places : std::uint8_t {
    kOwn,         // the sum of the matrix as it is read
    kTransposed,  // the sum of its transpose
  };
  // Computes the sum of a matrix with elements of 1, 2, 4, 8 or 16 bytes. Requires: rows * columns
  // elements will be added; neither number is 0.
  PlaceSum(std::uint32_t element_bytes, std::uint64_t rows, std::uint64_t columns, Places places);
  PlaceSum(std::uint32_t element_bytes, const Shape& matrix, Places places)
      : PlaceSum(element_bytes, static_cast<std::uint64_t>(matrix[0]),
                 static_cast<std::uint64_t>(matrix[1]), places) {}

  // Adds the next elements. Requires: `elements` consists of whole elements.
  void add(std::span<const std::byte> elements);
  [[nodiscard]] std::uint64_t value() const { return sum_; }

 private:
  template <typename Element>
  void add_all(std::span<const std::byte> elements);

  std::uint32_t element_bytes_;
  std::uint64_t columns_;
  std::uint64_t step_;  // from an element to the next one in its row
  std::uint64_t row_ = 0;
  std::uint64_t column_ = 0;
  std::uint64_t row_step_;
  std::uint64_t element_factor_;
  std::uint64_t place_factor_;
  std::uint64_t sum_ = 0;
};

// Returns the sum after adding all elements of the stream.
[[nodiscard]] Result<std::uint64_t> place_sum(const ByteStream& stream, PlaceSum sum);

}  // namespace onnx_external
