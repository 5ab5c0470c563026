// Defines recipes: lists of steps that compute the bytes of an initializer from a tensor of the
// checkpoint.
//
// The steps are applied in order and do the same as torch's methods of the same names. Negative
// dimensions and indices count from the end. A step changes only the view, which describes where
// the tensor's elements are stored. It reads no bytes and allocates no array. Recipes are plain
// values, safe from any thread.
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
  // {"reshape": [2, -1]}: changes the dimensions, but not the order of the elements. One dimension
  // may be -1, which means that it is computed from the number of elements.
  kReshape,
  // {"slice": [dim, start, stop]}: selects the indices from `start` up to, but not including,
  // `stop`. The range must be inside the dimension and contain at least one index. Unlike in torch,
  // a range that is too large is an error.
  kSlice,
  // "cast": converts the values to the element type of the initializer, as torch's .to() does. It
  // must be the last step. The view stays unchanged, and read_as() converts the bytes when they are
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

// Returns the stable name of a step in map files, manifests and reports, such as "transpose".
[[nodiscard]] std::string_view step_name(StepKind kind);
// Returns whether steps of this kind have RecipeStep::numbers.
[[nodiscard]] bool takes_numbers(StepKind kind);

// Returns a recipe as text, such as "transpose, slice [0, 0, 128], cast"; "" for an empty recipe.
[[nodiscard]] std::string recipe_text(const Recipe& recipe);
// Returns a recipe in the past tense, for reports, such as "transposed, sliced [0, 0, 128], cast".
[[nodiscard]] std::string recipe_done_text(const Recipe& recipe);

// Returns whether the recipe has an odd number of transposes. If it has no steps except transposes
// and a cast, its result is then transposed.
[[nodiscard]] bool transposes(const Recipe& recipe);
[[nodiscard]] bool ends_with_cast(const Recipe& recipe);
// Returns the recipe with a cast at its end if `cast` is true, otherwise without one.
[[nodiscard]] Recipe with_cast(Recipe recipe, bool cast);
// Returns the recipe with one more transpose, which is placed before a final cast.
[[nodiscard]] Recipe turned_once_more(Recipe recipe);

// Returns the shape of the result if the recipe is applied to a contiguous tensor of the given
// shape. Fails with kMismatch if the shape does not allow a step. Fails with kInvalidArgument for
// more than kMaxRecipeSteps steps, a cast that is not the last step, and numbers that are invalid
// for every tensor.
[[nodiscard]] Result<Shape> apply_recipe(const Recipe& recipe, const Shape& shape);

// Applies the recipe to a view, and returns a view of the same storage with other strides. The
// elements of the returned view, in row-major order, are the elements of the result. If a reshape
// merges dimensions that a single stride cannot describe, as after a transpose, the view keeps
// these dimensions separate. In this case use the overload for shapes to get the shape of the
// result. Errors are those of that overload. Also fails with kMismatch if elements share bytes, or
// if no strides describe the elements (a reshape or slice that cuts through merged dimensions).
[[nodiscard]] Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view);

}  // namespace onnx_external
