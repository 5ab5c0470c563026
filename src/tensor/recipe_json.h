// Converts recipes to and from the JSON in map files and manifests: a list of steps, each of which
// is "NAME" or {"NAME": [NUMBER, ...]}.
#pragma once

#include <string>

#include "base/json.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Fails with kCorrupt if `steps` is not a list, has more than kMaxRecipeSteps steps and a cast, or
// has a step that is unknown, has other members or lacks its numbers.
[[nodiscard]] Result<Recipe> parse_recipe(const Json& steps);

// ["transpose", {"slice": [0, 0, 128]}]
[[nodiscard]] std::string recipe_json(const Recipe& recipe);

}  // namespace onnx_external
