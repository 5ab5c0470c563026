// How the bytes of a graph's tensor are made from a tensor of the checkpoint.
//
// A recipe is a list of steps, applied in order to the tensor's view: no step reads a byte or makes
// an array in memory. Plain values, safe from any thread. (Conversions of the element type are not
// recorded here yet: they follow from the types on both sides, see PlannedTensor::cast_to.)
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
};

// Empty: the tensor as it is.
using Recipe = std::vector<RecipeStep>;

inline constexpr std::size_t kMaxRecipeSteps = 8;

// "transpose"; the stable name in map files, manifests and reports.
[[nodiscard]] std::string_view recipe_step_name(RecipeStep step);
[[nodiscard]] std::optional<RecipeStep> recipe_step_called(std::string_view name);

// "transpose", "transpose, transpose"; "" for an empty recipe.
[[nodiscard]] std::string recipe_text(const Recipe& recipe);

// The shape that the recipe makes. kMismatch for a step that the shape does not allow;
// kInvalidArgument for more than kMaxRecipeSteps.
[[nodiscard]] Result<Shape> apply_recipe(const Recipe& recipe, Shape shape);

// The view that the recipe makes; strides and places of the same storage. Errors as above;
// kMismatch for elements that share bytes.
[[nodiscard]] Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view);

}  // namespace onnx_external
