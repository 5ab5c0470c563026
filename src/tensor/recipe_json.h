// Recipes in map files and manifests: lists of the names of their steps.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// kCorrupt for what is no list, a longer one than kMaxRecipeSteps, and a step that is not known.
[[nodiscard]] Result<Recipe> parse_recipe(const Json& steps);

// ["transpose"]
[[nodiscard]] std::string recipe_json(const Recipe& recipe);

}  // namespace onnx_external
