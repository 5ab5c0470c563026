// Tracks the sizes and strides of a tensor view while the steps of a recipe (transpose, reshape,
// ...) rearrange its dimensions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Only strides and offsets are computed, and no element is moved. A reshape may merge dimensions
// that a single stride cannot describe, such as those of a transposed tensor. Such dimensions are
// kept separately inside one axis. Negative dimensions and indices count from the end. All errors
// are kMismatch. After an error, the axes are unspecified.
class Axes {
 public:
  // Requires: element_count(shape) succeeds; there are as many strides as dimensions; no stride is
  // negative.
  Axes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

  // Reorders the dimensions. `dims` must contain each dimension once.
  [[nodiscard]] Status permute(std::span<const std::int64_t> dims);
  // Changes the shape. One size may be -1.
  [[nodiscard]] Status reshape(std::span<const std::int64_t> shape);
  [[nodiscard]] Status slice(std::int64_t dim, std::int64_t start, std::int64_t stop);

  [[nodiscard]] Shape shape() const;
  // Returns the offset of the first element from the first element of the original view, in
  // elements.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  // Returns the strided dimensions of all axes, outermost first.
  [[nodiscard]] std::vector<StridedDim> dims() const;

 private:
  // The strided dimensions that form one dimension of the tensor, outermost first; never empty.
  using Axis = std::vector<StridedDim>;

  [[nodiscard]] static std::uint64_t size_of(const Axis& axis);
  [[nodiscard]] Result<std::size_t> place_of(std::int64_t dim) const;
  [[nodiscard]] Result<Shape> resolved(std::span<const std::int64_t> shape) const;
  [[nodiscard]] std::vector<StridedDim> merged() const;

  std::vector<Axis> axes_;
  std::uint64_t offset_ = 0;  // elements
};

}  // namespace onnx_external
