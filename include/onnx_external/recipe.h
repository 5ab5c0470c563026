// How the bytes of a graph's tensor are made from a tensor of the checkpoint.
//
// A recipe is a list of steps, applied in order to the tensor's view: no step reads a byte or makes
// an array in memory. Plain values, safe from any thread.
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
  // "cast": the values become the element type of the graph's tensor, as torch's .to() does it.
  // The last step, and no step of the view: who reads the bytes converts them (read_as()).
  kCast,
};

// Empty: the tensor as it is.
using Recipe = std::vector<RecipeStep>;

inline constexpr std::size_t kMaxRecipeSteps = 8;

// "transpose", "cast"; the stable name in map files, manifests and reports.
[[nodiscard]] std::string_view recipe_step_name(RecipeStep step);
[[nodiscard]] std::optional<RecipeStep> recipe_step_called(std::string_view name);

// "transpose", "transpose, cast"; "" for an empty recipe.
[[nodiscard]] std::string recipe_text(const Recipe& recipe);

// Whether the matrix that it makes is the transposed one: two transposes make none.
[[nodiscard]] bool transposes(const Recipe& recipe);
[[nodiscard]] bool ends_with_cast(const Recipe& recipe);
// The recipe with or without the cast at its end.
[[nodiscard]] Recipe with_cast(Recipe recipe, bool cast);
// The recipe of the transposed tensor: one more step, before a cast.
[[nodiscard]] Recipe turned_once_more(Recipe recipe);

// The shape that the recipe makes. kMismatch for a step that the shape does not allow;
// kInvalidArgument for more than kMaxRecipeSteps, and for a cast that is not the last step.
[[nodiscard]] Result<Shape> apply_recipe(const Recipe& recipe, Shape shape);

// The view that the recipe makes; strides and places of the same storage. Errors as above;
// kMismatch for elements that share bytes.
[[nodiscard]] Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view);

}  // namespace onnx_external
