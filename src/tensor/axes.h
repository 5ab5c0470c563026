// Tracks the dimensions of a view while a recipe rearranges them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"
#include "tensor/strided_gather.h"

namespace onnx_external {

// Computes strides and offsets only; no element moves. A reshape may merge dimensions that no
// single stride can step through (those of a transposed tensor); they are then kept separately
// inside one axis. Dimensions and indices may be negative, and then count from the end. All errors
// are kMismatch, and leave the axes unspecified.
class Axes {
 public:
  // Requires: element_count(shape) succeeds; as many strides as dimensions, none negative.
  Axes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

  // `dims` has each dimension once.
  [[nodiscard]] Status permute(std::span<const std::int64_t> dims);
  // The sizes may have one -1.
  [[nodiscard]] Status reshape(std::span<const std::int64_t> shape);
  [[nodiscard]] Status slice(std::int64_t dim, std::int64_t start, std::int64_t stop);

  [[nodiscard]] Shape shape() const;
  // The offset of the first element, in elements, from the first element of the original view.
  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  // The strided dimensions of all axes, outermost first.
  [[nodiscard]] std::vector<StridedDim> dims() const;

 private:
  // The strided dimensions that make up one dimension of the tensor, outermost first; never empty.
  using Axis = std::vector<StridedDim>;

  [[nodiscard]] static std::uint64_t size_of(const Axis& axis);
  [[nodiscard]] Result<std::size_t> place_of(std::int64_t dim) const;
  [[nodiscard]] Result<Shape> resolved(std::span<const std::int64_t> shape) const;
  [[nodiscard]] std::vector<StridedDim> merged() const;

  std::vector<Axis> axes_;
  std::uint64_t offset_ = 0;  // elements
};

}  // namespace onnx_external
