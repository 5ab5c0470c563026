#include "onnx_external/recipe.h"

#include <utility>

namespace onnx_external {
namespace {

Status check_steps(const Recipe& recipe, std::size_t rank) {
  if (recipe.size() > kMaxRecipeSteps) {
    return fail(ErrorCode::kInvalidArgument,
                "a recipe of more than " + std::to_string(kMaxRecipeSteps) + " steps");
  }
  if (!recipe.empty() && rank != 2) {
    return fail(ErrorCode::kMismatch, "only a matrix can be transposed, and this tensor has " +
                                          std::to_string(rank) + " dimensions");
  }
  return {};
}

}  // namespace

std::string_view recipe_step_name(RecipeStep step) {
  switch (step) {
    case RecipeStep::kTranspose:
      return "transpose";
  }
  return "";
}

std::optional<RecipeStep> recipe_step_called(std::string_view name) {
  return name == recipe_step_name(RecipeStep::kTranspose) ? std::optional(RecipeStep::kTranspose)
                                                          : std::nullopt;
}

std::string recipe_text(const Recipe& recipe) {
  std::string text;
  for (const RecipeStep step : recipe) {
    text += text.empty() ? "" : ", ";
    text += recipe_step_name(step);
  }
  return text;
}

Result<Shape> apply_recipe(const Recipe& recipe, Shape shape) {
  if (Status status = check_steps(recipe, shape.size()); !status) {
    return fail(std::move(status).error());
  }
  for (std::size_t i = 0; i < recipe.size(); ++i) {
    std::swap(shape[0], shape[1]);
  }
  return shape;
}

Result<TensorView> apply_recipe(const Recipe& recipe, TensorView view) {
  if (Status status = check_steps(recipe, view.shape.size()); !status) {
    return fail(std::move(status).error());
  }
  if (!recipe.empty() && view.dtype == DType::kFloat4E2M1FnX2) {
    return fail(ErrorCode::kMismatch, "two of its values share a byte, so it cannot be transposed");
  }
  for (std::size_t i = 0; i < recipe.size(); ++i) {
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
  }
  return view;
}

}  // namespace onnx_external
