#include "onnx_external/recipe.h"

#include <algorithm>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

bool has_transpose(const Recipe& recipe) {
  return std::find(recipe.begin(), recipe.end(), RecipeStep::kTranspose) != recipe.end();
}

Status check_steps(const Recipe& recipe, std::size_t rank) {
  if (recipe.size() > kMaxRecipeSteps) {
    return fail(ErrorCode::kInvalidArgument,
                "a recipe of more than " + std::to_string(kMaxRecipeSteps) + " steps");
  }
  if (!recipe.empty() &&
      std::find(recipe.begin(), recipe.end(), RecipeStep::kCast) < recipe.end() - 1) {
    return fail(ErrorCode::kInvalidArgument, "a cast is the last step of a recipe");
  }
  if (has_transpose(recipe) && rank != 2) {
    return fail(ErrorCode::kMismatch, "only a matrix can be transposed, and this tensor has " +
                                          std::to_string(rank) + " dimensions");
  }
  return {};
}

}  // namespace

std::string_view recipe_step_name(RecipeStep step) {
  return step == RecipeStep::kTranspose ? "transpose" : "cast";
}

std::optional<RecipeStep> recipe_step_called(std::string_view name) {
  for (const RecipeStep step : {RecipeStep::kTranspose, RecipeStep::kCast}) {
    if (name == recipe_step_name(step)) {
      return step;
    }
  }
  return std::nullopt;
}

std::string recipe_text(const Recipe& recipe) {
  std::string text;
  for (const RecipeStep step : recipe) {
    text += text.empty() ? "" : ", ";
    text += recipe_step_name(step);
  }
  return text;
}

bool transposes(const Recipe& recipe) {
  return std::count(recipe.begin(), recipe.end(), RecipeStep::kTranspose) % 2 != 0;
}

bool ends_with_cast(const Recipe& recipe) {
  return !recipe.empty() && recipe.back() == RecipeStep::kCast;
}

Recipe with_cast(Recipe recipe, bool cast) {
  if (cast && !ends_with_cast(recipe)) {
    recipe.push_back(RecipeStep::kCast);
  } else if (!cast && ends_with_cast(recipe)) {
    recipe.pop_back();
  }
  return recipe;
}

Recipe turned_once_more(Recipe recipe) {
  const bool cast = ends_with_cast(recipe);
  recipe = with_cast(std::move(recipe), false);
  recipe.push_back(RecipeStep::kTranspose);
  return with_cast(std::move(recipe), cast);
}

Result<Shape> apply_recipe(const Recipe& recipe, Shape shape) {
  TRY(check_steps(recipe, shape.size()));
  if (transposes(recipe)) {
    std::swap(shape[0], shape[1]);
  }
  return shape;
}

Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view) {
  TRY(check_steps(recipe, view.shape.size()));
  if (has_transpose(recipe) && view.dtype == DType::kFloat4E2M1FnX2) {
    return fail(ErrorCode::kMismatch, "two of its values share a byte, so it cannot be transposed");
  }
  if (transposes(recipe)) {
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
  }
  return view;
}

}  // namespace onnx_external
