// Combines the steps that move the elements of a weight (slices, permutes, reshapes) into a recipe,
// the list of steps that a save applies to the weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "onnx_external/recipe.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The chain of views from a tensor to a value. It is stored as slices and an order of the tensor's
// own axes, so that steps that undo each other cancel out. Two chains that produce the same
// elements by permutes, slices, squeezes and unsqueezes therefore have the same recipe. A member
// function returns false if the shape does not allow the step. After this, the chain must not be
// used.
class ViewChain {
 public:
  // Requires: element_count(shape) succeeds.
  explicit ViewChain(Shape shape);

  [[nodiscard]] Shape shape() const;

  // Applies ONNX's Transpose. An empty `perm` reverses the dimensions. This and the following
  // functions require that axes are not negative.
  [[nodiscard]] bool permute(std::span<const std::int64_t> perm);
  [[nodiscard]] bool slice(std::size_t axis, std::int64_t start, std::int64_t stop);
  // Removes one axis of size 1.
  [[nodiscard]] bool squeeze(std::size_t axis);
  // Inserts an axis of size 1 before `axis`.
  [[nodiscard]] bool unsqueeze(std::size_t axis);
  // Changes the shape. Requires: the number of elements stays the same.
  [[nodiscard]] bool reshape(const Shape& shape);
  // Applies a step of a recipe. A cast does nothing.
  [[nodiscard]] bool apply(const RecipeStep& step);

  // Returns the steps from the tensor to the value. There may be more than kMaxRecipeSteps.
  [[nodiscard]] Recipe recipe() const;

 private:
  static constexpr std::size_t kInserted = static_cast<std::size_t>(-1);

  struct Axis {
    std::int64_t size = 0;  // size in the tensor
    std::int64_t start = 0;
    std::int64_t stop = 0;
  };

  void begin(const Shape& shape);
  [[nodiscard]] std::int64_t size_of(std::size_t place) const;
  [[nodiscard]] bool has_rank(std::size_t rank) const { return rank <= kMaxRecipeRank; }

  Recipe done_;                     // all steps up to the last reshape that joined or split axes
  std::vector<Axis> axes_;          // axes of the tensor after `done_`
  std::vector<std::size_t> order_;  // for each dimension, index into axes_, or kInserted
};

}  // namespace onnx_external
