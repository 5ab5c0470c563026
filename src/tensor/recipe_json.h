// Converts recipes to and from the JSON in map files and manifests. A recipe is a list of steps,
// each of which is "NAME" or {"NAME": [NUMBER, ...]}.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Parses a recipe. Fails with kCorrupt if `steps` is not a list, has more than kMaxRecipeSteps + 1
// steps, or has a step that is unknown, has other members or lacks its numbers.
[[nodiscard]] Result<Recipe> parse_recipe(const Json& steps);

// Formats a recipe: ["transpose", {"slice": [0, 0, 128]}].
[[nodiscard]] std::string recipe_json(const Recipe& recipe);

}  // namespace onnx_external
