// Recipes in map files and manifests: lists of step names.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// kCorrupt if `steps` is not a list, is longer than kMaxRecipeSteps, or has an unknown step.
[[nodiscard]] Result<Recipe> parse_recipe(const Json& steps);

// ["transpose"]
[[nodiscard]] std::string recipe_json(const Recipe& recipe);

}  // namespace onnx_external
