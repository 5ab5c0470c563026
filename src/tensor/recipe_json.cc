#include "tensor/recipe_json.h"

#include <optional>

namespace onnx_external {

Result<Recipe> parse_recipe(const Json& steps) {
  if (steps.array() == nullptr || steps.array()->size() > kMaxRecipeSteps) {
    return fail(ErrorCode::kCorrupt,
                "a recipe is a list of at most " + std::to_string(kMaxRecipeSteps) + " steps");
  }
  Recipe recipe;
  for (const Json& step : *steps.array()) {
    const auto known = step.string() != nullptr ? recipe_step_called(*step.string()) : std::nullopt;
    if (!known) {
      return fail(ErrorCode::kCorrupt,
                  "a step of its recipe is unknown; known are \"transpose\" and \"cast\"");
    }
    recipe.push_back(*known);
  }
  return recipe;
}

std::string recipe_json(const Recipe& recipe) {
  std::string text = "[";
  for (const RecipeStep step : recipe) {
    text += (text.size() > 1 ? ", " : "") + json_quote(recipe_step_name(step));
  }
  return text + "]";
}

}  // namespace onnx_external
