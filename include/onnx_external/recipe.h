// How the bytes of an initializer are made from a tensor of the checkpoint.
//
// A recipe is a list of steps that are applied in order to the tensor's view; no step reads bytes
// or allocates an array. Recipes are plain values, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

enum class RecipeStep : std::uint8_t {
  kTranspose,  // "transpose": swaps the two dimensions of a matrix
  // "cast": converts the values to the element type of the initializer, as torch's .to() does. It
  // must be the last step. It does not change the view; read_as() converts the bytes when they are
  // read.
  kCast,
};

// An empty recipe leaves the tensor as it is.
using Recipe = std::vector<RecipeStep>;

inline constexpr std::size_t kMaxRecipeSteps = 8;

// "transpose", "cast": the stable names in map files, manifests and reports.
[[nodiscard]] std::string_view recipe_step_name(RecipeStep step);
[[nodiscard]] std::optional<RecipeStep> recipe_step_called(std::string_view name);

// "transpose", "transpose, cast"; "" for an empty recipe.
[[nodiscard]] std::string recipe_text(const Recipe& recipe);

// Whether the result is transposed; two transposes cancel out.
[[nodiscard]] bool transposes(const Recipe& recipe);
[[nodiscard]] bool ends_with_cast(const Recipe& recipe);
// The recipe with a cast at its end, or without one.
[[nodiscard]] Recipe with_cast(Recipe recipe, bool cast);
// The recipe with one more transpose, placed before a final cast.
[[nodiscard]] Recipe turned_once_more(Recipe recipe);

// The shape that the recipe produces. kMismatch if the shape does not allow a step;
// kInvalidArgument for more than kMaxRecipeSteps steps, or a cast that is not the last one.
[[nodiscard]] Result<Shape> apply_recipe(const Recipe& recipe, Shape shape);

// The view that the recipe produces: other strides over the same storage. Errors as above, and
// kMismatch if elements share bytes.
[[nodiscard]] Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view);

}  // namespace onnx_external
