// Defines recipes: lists of steps that compute the bytes of an initializer from a tensor of the
// checkpoint.
//
// The steps are applied in order and do the same as torch's methods of the same names. Negative
// dimensions and indices count from the end. A step only changes the tensor's view, which describes
// where its elements are; it reads no bytes and allocates no array. Recipes are plain values, safe
// from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

enum class StepKind : std::uint8_t {
  kTranspose,  // "transpose": swaps the two dimensions of a matrix
  kPermute,    // {"permute": [1, 0, 2]}: the tensor's dimensions in another order
  // {"reshape": [2, -1]}: the same elements in the same order, in other dimensions. One dimension
  // may be -1; it is computed from the number of elements.
  kReshape,
  // {"slice": [dim, start, stop]}: the indices from `start` up to, but not including, `stop`. Both
  // must exist, and at least one index must remain: a range that is too large is an error, unlike
  // in torch, which cuts it off.
  kSlice,
  // "cast": converts the values to the element type of the initializer, as torch's .to() does. It
  // must be the last step. It does not change the view; read_as() converts the bytes when they are
  // read.
  kCast,
};

struct RecipeStep {
  StepKind kind = StepKind::kTranspose;
  std::vector<std::int64_t> numbers = {};  // arguments of kPermute, kReshape, kSlice

  [[nodiscard]] static RecipeStep transpose() { return {StepKind::kTranspose, {}}; }
  [[nodiscard]] static RecipeStep permute(std::vector<std::int64_t> dims) {
    return {StepKind::kPermute, std::move(dims)};
  }
  [[nodiscard]] static RecipeStep reshape(Shape shape) {
    return {StepKind::kReshape, std::move(shape)};
  }
  [[nodiscard]] static RecipeStep slice(std::int64_t dim, std::int64_t start, std::int64_t stop) {
    return {StepKind::kSlice, {dim, start, stop}};
  }
  [[nodiscard]] static RecipeStep cast() { return {StepKind::kCast, {}}; }

  friend bool operator==(const RecipeStep&, const RecipeStep&) = default;
};

// An empty recipe leaves the tensor unchanged.
using Recipe = std::vector<RecipeStep>;

inline constexpr std::size_t kMaxRecipeSteps = 8;  // a final cast is not counted
inline constexpr std::size_t kMaxRecipeRank = 64;  // torch's limit on dimensions

// "transpose", "permute", "reshape", "slice", "cast": the stable names in map files, manifests and
// reports.
[[nodiscard]] std::string_view step_name(StepKind kind);
// Returns whether steps of this kind have RecipeStep::numbers.
[[nodiscard]] bool takes_numbers(StepKind kind);

// "transpose, slice [0, 0, 128], cast"; "" for an empty recipe.
[[nodiscard]] std::string recipe_text(const Recipe& recipe);
// The recipe in the past tense, for reports: "transposed, sliced [0, 0, 128], cast".
[[nodiscard]] std::string recipe_done_text(const Recipe& recipe);

// Returns whether a recipe that only transposes has a transposed result. Two transposes cancel out.
[[nodiscard]] bool transposes(const Recipe& recipe);
[[nodiscard]] bool ends_with_cast(const Recipe& recipe);
// Returns the recipe with a cast at its end if `cast` is true, otherwise without one.
[[nodiscard]] Recipe with_cast(Recipe recipe, bool cast);
// Returns the recipe with one more transpose, which is placed before a final cast.
[[nodiscard]] Recipe turned_once_more(Recipe recipe);

// Returns the shape of the result if the recipe is applied to a contiguous tensor of the given
// shape. Errors: kMismatch if the shape does not allow a step; kInvalidArgument for more than
// kMaxRecipeSteps steps, a cast that is not the last one, or numbers that are invalid for every
// tensor.
[[nodiscard]] Result<Shape> apply_recipe(const Recipe& recipe, const Shape& shape);

// Applies the recipe to a view: the result has other strides over the same storage. The view's
// elements, in row-major order, are those of the result. The view also has the shape of the result,
// unless a reshape merged dimensions that no single stride can step through, as after a transpose.
// In this case the view keeps these dimensions separate, and only the function above returns the
// shape of the result. Errors as above, and kMismatch if elements share bytes, or if no strides
// reach the elements (a reshape or slice that cuts through joined dimensions).
[[nodiscard]] Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view);

}  // namespace onnx_external
